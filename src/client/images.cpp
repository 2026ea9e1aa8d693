#include "client/images.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "client/call.h"
#include "client/copy.h"
#include "client/image_upload.h"
#include "client/opened_memory.h"
#include "client/plain_objects.h"
#include "image/device_entries.h"

namespace gpupool::client {
namespace {

constexpr std::uint32_t max_kernels = 1u << 20;

/// Shared by all images of a session: a kernel's layout never changes.
bool decode_kernels(std::span<const std::byte> bytes, Image& image) {
  wire::Reader in(bytes);
  const auto count = in.get<std::uint32_t>();
  if (!in.ok() || count > max_kernels) return false;
  for (std::uint32_t n = 0; n < count; ++n) {
    auto info = std::make_shared<KernelInfo>();
    if (!KernelInfo::decode(in, *info)) return false;
    image.by_name.emplace(info->name, n);
    image.kernels.push_back(std::move(info));
  }
  return in.finished();
}

/// Loads by digest, or with the bytes where the worker does not have them. `reply` refers to `bytes`.
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

/// Once a library is on the first worker: the same on another one, where its kernels may come in another
/// order.
CUresult load_on(const WorkerLink& worker, const void* start, std::size_t size, const messages::LoadImage& m,
                 Image& image) {
  const std::uint64_t context = context_on(worker);
  replies::LoadImage reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const auto load = [&] {
    own = CUDA_ERROR_UNKNOWN;
    return ask_to_load(start, size, m, context, reply, bytes, own);
  };
  CUresult result = load();
  if (own == CUDA_ERROR_OUT_OF_MEMORY && runtime().memory.trim_all()) result = load();
  Image there;
  if (own == CUDA_SUCCESS && decode_kernels(reply.kernels, there)) {
    std::vector<std::uint32_t> ordinals;
    for (const auto& kernel : image.kernels) {
      const auto found = there.by_name.find(kernel->name);
      if (found == there.by_name.end()) break;
      ordinals.push_back(found->second);
    }
    if (ordinals.size() == image.kernels.size()) {
      image.ordinals[worker.index] = std::move(ordinals);
      return result;
    }
    result = refuse_mixed("a library", "the nodes' drivers find different kernels in it");
  } else if (result == CUDA_SUCCESS) {
    result = CUDA_ERROR_UNKNOWN;
  }
  if (own == CUDA_SUCCESS) {
    messages::UnloadImage end;
    end.image = m.image;
    static_cast<void>(post(end, context));
  }
  return result;
}

/// Sends what makes something of a library to every worker that has it; of a module, to its own.
template <class M, class ForOther>
CUresult post_for(const Image& image, std::uint64_t context, const M& message, ForOther adapt) {
  CUresult first = post(message, context);
  if (!image.is_library || !runtime().several()) return first;
  for (unsigned n = 0; n < runtime().workers(); ++n) {
    WorkerLink& worker = runtime().worker(n);
    if (&worker == &worker_of_context(context)) continue;
    M other = message;
    adapt(other, worker);
    const CUresult result = post(other, context_on(worker));
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}
template <class M>
CUresult post_for(const Image& image, std::uint64_t context, const M& message) {
  return post_for(image, context, message, [](M&, const WorkerLink&) {});
}

std::uint32_t ordinal_on(const Image& image, const WorkerLink& worker, std::uint32_t ordinal) {
  const auto found = image.ordinals.find(worker.index);
  return found == image.ordinals.end() ? ordinal : found->second[ordinal];
}

}  // namespace

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
  if (own == CUDA_ERROR_OUT_OF_MEMORY && runtime().memory.trim_all()) result = load();
  store_logs(options, reply.logs);
  if (result == CUDA_SUCCESS && !decode_kernels(reply.kernels, *image)) result = CUDA_ERROR_UNKNOWN;
  if (result != CUDA_SUCCESS && own != CUDA_SUCCESS) {
    is_library ? tables().libraries.drop(handle) : tables().modules.drop(handle);
    return result;
  }
  if (is_library && result == CUDA_SUCCESS && runtime().several()) {
    const auto* const bytes_sent = selected.empty() ? start : selected.data();
    const std::size_t bytes_size = selected.empty() ? size : selected.size();
    for (unsigned n = 0; n < runtime().workers() && result == CUDA_SUCCESS; ++n) {
      const WorkerLink& worker = runtime().worker(n);
      if (&worker == &worker_of_context(context)) continue;
      result = load_on(worker, bytes_sent, bytes_size, m, *image);
    }
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

// The worker forgets what was made from the image together with it.
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
    const std::lock_guard lock(image->mutex);
    for (const auto& [ordinal, bound] : image->bound) {
      image->is_library ? retire(t.kernels, bound, kernels) : retire(t.functions, bound, functions);
    }
    for (const auto function : image->functions) retire(t.functions, function, functions);
    if (image->module != 0) retire(t.modules, image->module, modules);
  }
  messages::UnloadImage m;
  m.image = handle;
  if (image->is_library && runtime().several()) {
    for (const auto& [number, ordinals] : image->ordinals) {
      static_cast<void>(post(m, context_on(runtime().worker(number))));
    }
  }
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
  const std::lock_guard lock(image.mutex);
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

CUresult function_of_kernel(std::uint64_t kernel, std::uint64_t& function) {
  Function* const object = tables().kernels.find(kernel);
  if (object == nullptr) return bad_handle(wire::Kind::kernel);
  const auto image = find_image(object->image);
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t context = current_context();
  if (context == 0) context = image->context;
  const std::lock_guard lock(image->mutex);
  std::uint64_t& made_before = object->functions[context];
  if (made_before == 0) {
    Function* made = nullptr;
    const std::uint64_t handle = tables().functions.mint(made);
    if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    made->info = object->info;
    made->parameter_bytes = object->parameter_bytes;
    made->image = object->image;
    made->kernel = kernel;
    made->context = context;
    messages::BindFunctionOfKernel m;
    m.function = handle;
    m.kernel = kernel;
    if (const CUresult bad = post(m, context); bad != CUDA_SUCCESS) {
      tables().functions.drop(handle);
      return bad;
    }
    made_before = handle;
    image->functions.push_back(handle);
  }
  function = made_before;
  return CUDA_SUCCESS;
}

CUresult find_global(Image& image, const char* name, CUdeviceptr& address, std::size_t& size) {
  const std::lock_guard lock(image.mutex);
  // A library has its variables on every worker, each at its own address.
  const bool everywhere = image.is_library && runtime().several();
  const std::uint64_t context = everywhere && current_context() != 0 ? current_context() : image.context;
  const std::pair<unsigned, std::string> key{everywhere ? worker_of_context(context).index : 0, name};
  if (const auto found = image.globals.find(key); found != image.globals.end()) {
    std::tie(address, size) = found->second;
    return CUDA_SUCCESS;
  }
  messages::FindGlobal m;
  m.image = image.handle;
  m.name = text(name);
  replies::FindGlobal reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, context, bytes);
  if (result != CUDA_SUCCESS) return result;
  address = reply.address;
  size = reply.size;
  image.globals[key] = {address, size};
  remember_global(address, size, worker_of_context(context).index);
  return CUDA_SUCCESS;
}

CUresult set_function_attribute(const Function& function, std::uint64_t handle, int attribute, int value) {
  const auto image = find_image(function.image);
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  messages::SetFunctionAttribute m;
  m.function = handle;
  m.attribute = attribute;
  m.value = value;
  return function.context != 0 ? post(m, context) : post_for(*image, context, m);
}

CUresult bind_module_of_library(const Image& library, std::uint64_t module, std::uint64_t context) {
  messages::BindModuleOfLibrary m;
  m.module = module;
  m.library = library.handle;
  return post_for(library, context, m);
}

CUresult reset_context(std::uint64_t context, int device) {
  Tables& t = tables();
  std::vector<std::uint64_t> doomed;
  t.modules.each([&](std::uint64_t handle, const std::shared_ptr<Image>& image) {
    // A library's module goes with its library.
    if (image != nullptr && image->handle == handle && image->context == context) doomed.push_back(handle);
  });
  for (const auto handle : doomed) static_cast<void>(unload_image(handle));
  t.streams.each([&](std::uint64_t handle, const Stream& stream) {
    if (stream.context == context) static_cast<void>(cuStreamDestroy(handle_as<CUstream>(handle)));
  });
  t.events.each([&](std::uint64_t handle, const Event& event) {
    if (event.context == context) static_cast<void>(cuEventDestroy(handle_as<CUevent>(handle)));
  });
  end_arrays_of(context);
  opened_memory().close_all_of(context);
  const Context* const object = t.contexts.find(context);
  // The pools are the device's, so they go with its primary context.
  return runtime().memory.free_context(device, context, object != nullptr && object->primary);
}

}  // namespace gpupool::client
