#include "client/objects/images.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/memory/copy.h"
#include "client/memory/device_memory.h"
#include "client/memory/memory_pools.h"
#include "client/memory/opened_memory.h"
#include "client/objects/image_upload.h"
#include "client/objects/library_images.h"
#include "client/objects/plain_objects.h"
#include "image/device_entries.h"

namespace gpupool::client {
namespace {

constexpr std::uint32_t max_kernels = 1u << 20;

CUresult describe(Image& image, std::uint32_t ordinal) REQUIRES(image.mutex);
CUresult describe(Image& image, std::uint32_t ordinal) {
  if (image.kernels[ordinal]->described) return CUDA_SUCCESS;
  messages::DescribeKernel m;
  m.image = image.handle;
  m.ordinal = ordinal;
  replies::DescribeKernel reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, image.context, bytes);
  if (result != CUDA_SUCCESS) return result;
  wire::Reader in(reply.kernel);
  auto info = std::make_shared<KernelInfo>();
  if (!KernelInfo::decode(in, *info) || !info->described) return CUDA_ERROR_UNKNOWN;
  image.kernels[ordinal] = std::move(info);
  return CUDA_SUCCESS;
}

std::vector<unsigned> capabilities() {
  std::vector<unsigned> all;
  for (const DeviceDescription& device : runtime().devices()->devices) {
    const auto get = [&](int attribute) {
      const auto found = device.attributes.find(attribute);
      return found == device.attributes.end() ? 0u : static_cast<unsigned>(found->second);
    };
    all.push_back(get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                  get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  }
  return all;
}

/// The image without the machine code that none of the session's devices can use; empty: as it is.
std::vector<std::byte> for_this_session(const void* start, std::size_t size) {
  return image::entries_for({static_cast<const std::byte*>(start), size}, capabilities());
}

/// Those in a context; 0: in all.
void forget_variables(Image& image, std::uint64_t context) REQUIRES(image.mutex);
void forget_variables(Image& image, std::uint64_t context) {
  std::erase_if(image.globals, [&](const auto& entry) {
    if (context != 0 && entry.first.first != context) return false;
    forget_global(entry.second);
    return true;
  });
}

}  // namespace

bool decode_kernels(std::span<const std::byte> bytes, Image& image) {
  wire::Reader in(bytes);
  const auto count = in.get<std::uint32_t>();
  if (!in.ok() || count > max_kernels) return false;
  const MutexLock lock(image.mutex);
  for (std::uint32_t n = 0; n < count; ++n) {
    auto info = std::make_shared<KernelInfo>();
    if (!KernelInfo::decode(in, *info)) return false;
    image.by_name.emplace(info->name, n);
    image.kernels.push_back(std::move(info));
  }
  return in.finished();
}

CUresult ask_to_load(const void* start, std::size_t size, const messages::LoadImage& m, std::uint64_t context,
                     replies::LoadImage& reply, std::vector<std::byte>& bytes, CUresult& own) {
  const ImageUpload upload(start, size, worker_of_context(context));
  if (upload.by_digest()) {
    messages::LoadCachedImage by_digest;
    by_digest.image = m.image;
    by_digest.size = upload.size();
    by_digest.digest = upload.digest();
    by_digest.options = m.options;
    replies::LoadCachedImage answer;
    const CUresult result = ask(by_digest, answer, context, bytes, {}, nullptr, &own);
    if (own != CUDA_SUCCESS || upload.found(answer.answer)) {
      reply = {answer.kernels, answer.logs};
      return result;
    }
    own = CUDA_ERROR_UNKNOWN;  // nothing is loaded yet
    if (result != CUDA_SUCCESS) return result;
  }
  upload.sends();
  const iovec part{const_cast<void*>(start), size};
  return ask(m, reply, context, bytes, {&part, 1, size}, nullptr, &own);
}

std::shared_ptr<Image> find_image(std::uint64_t handle) {
  std::shared_ptr<Image>* found = tables().modules.find(handle);
  if (found == nullptr) found = tables().libraries.find(handle);
  return found == nullptr ? nullptr : *found;
}

Function* find_function(std::uint64_t handle) {
  Function* const found = tables().functions.find(handle);
  return found != nullptr ? found : tables().kernels.find(handle);
}

CUresult load_image(const void* start, std::size_t size, bool is_library, const JitOptionsIn& options,
                    std::uint64_t& handle) try {
  // A library belongs to no context, but the worker needs some current one.
  std::uint64_t context = current_context();
  if (context == 0 && !is_library) return in_current_context(context);
  if (context == 0) context = wire::Handle{wire::Kind::context, 0, 0}.value();
  std::vector<std::byte> encoded;
  if (const CUresult bad = encode_options(options, encoded); bad != CUDA_SUCCESS) return bad;
  auto image = std::make_shared<Image>();
  std::shared_ptr<Image>* slot = nullptr;
  handle = is_library ? tables().libraries.mint(slot) : tables().modules.mint(slot);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  image->handle = handle;
  image->context = context;
  image->is_library = is_library;

  messages::LoadImage m;
  m.image = handle;
  m.options = encoded;
  replies::LoadImage reply;
  std::vector<std::byte> bytes;
  const std::vector<std::byte> selected = for_this_session(start, size);
  CUresult own = CUDA_ERROR_UNKNOWN;
  const auto load = [&] {
    own = CUDA_ERROR_UNKNOWN;
    return selected.empty() ? ask_to_load(start, size, m, context, reply, bytes, own)
                            : ask_to_load(selected.data(), selected.size(), m, context, reply, bytes, own);
  };
  CUresult result = load();
  if (own == CUDA_ERROR_OUT_OF_MEMORY && device_memory().trim_all()) result = load();
  store_logs(options, reply.logs);
  if (result == CUDA_SUCCESS && !decode_kernels(reply.kernels, *image)) result = CUDA_ERROR_UNKNOWN;
  if (result != CUDA_SUCCESS && own != CUDA_SUCCESS) {
    is_library ? tables().libraries.drop(handle) : tables().modules.drop(handle);
    return result;
  }
  if (is_library && result == CUDA_SUCCESS && runtime().several()) {
    result = selected.empty() ? load_on_others(start, size, m, context, *image)
                              : load_on_others(selected.data(), selected.size(), m, context, *image);
  }
  *slot = std::move(image);
  if (result != CUDA_SUCCESS) {  // loaded, but the program hears of an earlier error
    static_cast<void>(unload_image(handle));
    return result;
  }
  return CUDA_SUCCESS;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult load_image_file(const char* path, bool is_library, const JitOptionsIn& options,
                         std::uint64_t& handle) try {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > (off_t{1} << 30)) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  std::vector<char> content(static_cast<std::size_t>(status.st_size) + 1, '\0');
  std::size_t got = 0;
  while (got + 1 < content.size()) {
    const ssize_t part = read(fd, content.data() + got, content.size() - 1 - got);
    if (part <= 0) break;
    got += static_cast<std::size_t>(part);
  }
  close(fd);
  return got == 0 ? CUDA_ERROR_INVALID_IMAGE : load_image(content.data(), got, is_library, options, handle);
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The worker forgets what was made from the image together with it. From then on the addresses of its
// variables may be those of another image's, so they are forgotten before it is told.
CUresult unload_image(std::uint64_t handle) try {
  const auto image = find_image(handle);
  if (image == nullptr) return bad_handle(wire::Kind::module);
  Tables& t = tables();
  std::vector<std::uint64_t> kernels, functions, modules;
  const auto retire = [](auto& table, std::uint64_t value, std::vector<std::uint64_t>& retired) {
    retired.push_back(value);
    if (!table.retire(value)) retired.pop_back();
  };
  {
    const MutexLock lock(image->mutex);
    for (const auto& [ordinal, bound] : image->bound) {
      image->is_library ? retire(t.kernels, bound, kernels) : retire(t.functions, bound, functions);
    }
    for (const auto function : image->functions) retire(t.functions, function, functions);
    for (const auto& [context, module] : image->modules) retire(t.modules, module, modules);
    forget_variables(*image, 0);
    for (const Global& global : image->managed) forget_global(global);
    image->managed.clear();
  }
  messages::UnloadImage m;
  m.image = handle;
  if (runtime().several()) unload_on_others(*image, m);
  const CUresult result = image->is_library ? destroy(t.libraries, handle, m, image->context)
                                            : destroy(t.modules, handle, m, image->context);
  if (result != CUDA_SUCCESS) return result;
  for (const auto value : kernels) t.kernels.recycle(value);
  for (const auto value : functions) t.functions.recycle(value);
  for (const auto value : modules) t.modules.recycle(value);
  return CUDA_SUCCESS;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult bind_kernel(Image& image, std::uint32_t ordinal, std::uint64_t& handle) {
  const MutexLock lock(image.mutex);
  if (ordinal >= image.kernels.size()) return CUDA_ERROR_NOT_FOUND;
  if (const auto bound = image.bound.find(ordinal); bound != image.bound.end()) {
    handle = bound->second;
    return CUDA_SUCCESS;
  }
  if (const CUresult bad = describe(image, ordinal); bad != CUDA_SUCCESS) return bad;
  Function* function = nullptr;
  handle = image.is_library ? tables().kernels.mint(function) : tables().functions.mint(function);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  function->info = image.kernels[ordinal];
  function->parameter_bytes = function->info->parameter_bytes();
  function->image = image.handle;
  messages::BindFunction m;
  m.function = handle;
  m.image = image.handle;
  m.ordinal = ordinal;
  const auto adapt = [&](messages::BindFunction& other, const WorkerLink& worker) {
    other.ordinal = ordinal_on(image, worker, ordinal);
  };
  if (const CUresult bad = post_for(image, image.context, m, adapt); bad != CUDA_SUCCESS) {
    image.is_library ? tables().kernels.drop(handle) : tables().functions.drop(handle);
    return bad;
  }
  image.bound[ordinal] = handle;
  return CUDA_SUCCESS;
}

CUresult find_kernel(Image& image, std::string_view name, std::uint64_t& handle) {
  const auto found = image.by_name.find(name);
  return found == image.by_name.end() ? CUDA_ERROR_NOT_FOUND : bind_kernel(image, found->second, handle);
}

CUresult reset_context(std::uint64_t context, int device) {
  Tables& t = tables();
  std::vector<std::uint64_t> doomed;
  t.modules.each([&](std::uint64_t handle, const std::shared_ptr<Image>& image) {
    // A library's module goes with its library.
    if (image != nullptr && image->handle == handle && image->context == context) doomed.push_back(handle);
  });
  for (const auto handle : doomed) static_cast<void>(unload_image(handle));
  t.libraries.each([&](std::uint64_t, const std::shared_ptr<Image>& image) {
    if (image == nullptr) return;
    const MutexLock lock(image->mutex);
    forget_variables(*image, context);
  });
  t.streams.each([&](std::uint64_t handle, const Stream& stream) {
    if (stream.context == context) static_cast<void>(cuStreamDestroy(handle_as<CUstream>(handle)));
  });
  t.events.each([&](std::uint64_t handle, const Event& event) {
    if (event.context == context) static_cast<void>(cuEventDestroy(handle_as<CUevent>(handle)));
  });
  end_arrays_of(context);
  opened_memory().close_all_of(context);
  const Context* const object = t.contexts.find(context);
  if (object == nullptr || !object->primary) return device_memory().free_context(device, context);
  // The pools are the device's, so their memory goes with its primary context. They stay, and count on.
  std::map<std::uint64_t, std::uint64_t> of_pools;
  const CUresult result = device_memory().free_context(device, context, &of_pools);
  for (const auto& [pool, bytes] : of_pools) uncount_in_pool(pool, bytes);
  return result;
}

}  // namespace gpupool::client
