// The driver's linker, which works at the worker's side.
#include <cuda.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/image_upload.h"
#include "client/objects/images.h"
#include "generated/client_api.h"

namespace gpupool::client {

/// A pending invocation. The program's option arrays must stay valid until it is destroyed, as CUDA demands.
struct Link {
  JitOptionsIn options;
  std::vector<CUjit_option> option_copy;
  std::uint64_t context = 0;
  std::vector<std::byte> cubin;
  bool complete = false;
};

namespace {

class IntoVector final : public PayloadSink {
 public:
  explicit IntoVector(std::vector<std::byte>& to) : to_(to) {}
  bool take(wire::Receiver& receiver, std::uint64_t size) override {
    if (size > (std::uint64_t{1} << 30)) return false;
    try {
      to_.resize(size);
    } catch (const std::bad_alloc&) {
      too_large_ = true;
      return receiver.skip(size);
    }
    return receiver.take(to_.data(), to_.size());
  }
  [[nodiscard]] bool too_large() const { return too_large_; }

 private:
  std::vector<std::byte>& to_;
  bool too_large_ = false;
};

std::shared_ptr<Link> find(CUlinkState state) {
  const std::shared_ptr<Link>* const found = tables().links.find(raw(state));
  return found == nullptr ? nullptr : *found;
}

CUresult add(CUlinkState state, CUjitInputType type, const void* data, std::size_t size, const char* name,
             const JitOptionsIn& options) try {
  const auto link = find(state);
  if (link == nullptr) return bad_handle(wire::Kind::link);
  if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> encoded, bytes;
  if (const CUresult bad = encode_options(options, encoded); bad != CUDA_SUCCESS) return bad;
  const ImageUpload upload(data, size, worker_of_context(link->context));
  if (upload.by_digest()) {
    messages::LinkAddCached m;
    m.link = raw(state);
    m.type = type;
    m.size = upload.size();
    m.digest = upload.digest();
    m.name = text(name != nullptr ? name : "");
    m.options = encoded;
    replies::LinkAddCached reply;
    CUresult own = CUDA_ERROR_UNKNOWN;
    const CUresult result = ask(m, reply, link->context, bytes, {}, nullptr, &own);
    if (own != CUDA_SUCCESS || upload.found(reply.answer)) {
      store_logs(link->options, reply.logs);
      return result;
    }
    if (result != CUDA_SUCCESS) return result;
  }
  messages::LinkAdd m;
  m.link = raw(state);
  m.type = type;
  m.name = text(name != nullptr ? name : "");
  m.options = encoded;
  replies::LinkAdd reply;
  upload.sends();
  const iovec part{const_cast<void*>(data), size};
  const CUresult result = ask(m, reply, link->context, bytes, {&part, 1, size});
  store_logs(link->options, reply.logs);
  return result;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace
}  // namespace gpupool::client

using namespace gpupool;
using namespace gpupool::client;

namespace gpupool::client::api {

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto link = std::make_shared<Link>();
  link->context = context;
  std::vector<std::byte> encoded;
  if (const CUresult bad = encode_options({numOptions, options, optionValues}, encoded); bad != CUDA_SUCCESS)
    return bad;
  // The options themselves may be gone after this call, the values are where the sizes of logs come back.
  if (numOptions != 0) link->option_copy.assign(options, options + numOptions);
  link->options = {numOptions, link->option_copy.data(), optionValues};
  std::shared_ptr<Link>* slot = nullptr;
  messages::LinkCreate m;
  m.link = tables().links.mint(slot);
  if (m.link == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  m.options = encoded;
  if (const CUresult bad = post(m, context); bad != CUDA_SUCCESS) {
    tables().links.drop(m.link);
    return bad;
  }
  *slot = std::move(link);
  *stateOut = handle_as<CUlinkState>(m.link);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return add(state, type, data, size, name, {numOptions, options, optionValues});
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int numOptions,
                          CUjit_option* options, void** optionValues) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > (off_t{1} << 30)) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  std::vector<char> content(static_cast<std::size_t>(status.st_size));
  std::size_t got = 0;
  while (got < content.size()) {
    const ssize_t part = read(fd, content.data() + got, content.size() - got);
    if (part <= 0) break;
    got += static_cast<std::size_t>(part);
  }
  close(fd);
  if (got == 0) return find(state) == nullptr ? bad_handle(wire::Kind::link) : CUDA_ERROR_INVALID_IMAGE;
  return add(state, type, content.data(), got, path, {numOptions, options, optionValues});
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  const auto link = find(state);
  if (link == nullptr) return bad_handle(wire::Kind::link);
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!link->complete) {
    messages::LinkComplete m;
    m.link = raw(state);
    replies::LinkComplete reply;
    std::vector<std::byte> bytes;
    IntoVector sink(link->cubin);
    CUresult own = CUDA_ERROR_UNKNOWN;
    const CUresult result = ask(m, reply, link->context, bytes, {}, &sink, &own);
    store_logs(link->options, reply.logs);
    link->complete = own == CUDA_SUCCESS &&
                     !sink.too_large();  // kept for the next try when the program hears of an earlier error
    if (result != CUDA_SUCCESS) return result;
    if (sink.too_large()) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *cubinOut = link->cubin.data();
  if (sizeOut != nullptr) *sizeOut = link->cubin.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  const auto link = find(state);
  if (link == nullptr) return bad_handle(wire::Kind::link);
  messages::LinkDestroy m;
  m.link = raw(state);
  return destroy(tables().links, m.link, m, link->context);
}

}  // namespace gpupool::client::api
