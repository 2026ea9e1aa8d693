#include "client/objects/library_images.h"

#include <string>
#include <utility>

#include "base/mutex.h"
#include "client/memory/copy.h"
#include "client/memory/device_memory.h"

namespace gpupool::client {
namespace {

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
  if (own == CUDA_ERROR_OUT_OF_MEMORY && device_memory().trim_all()) result = load();
  Image there;
  if (own == CUDA_SUCCESS && decode_kernels(reply.kernels, there)) {
    std::vector<std::uint32_t> ordinals;
    const MutexLock lock(image.mutex);
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

/// A library has its variables in every context, each at its own address. A module of it says which context
/// is meant; it is the current one else.
std::uint64_t context_of_variables(const Image& image, std::uint64_t handle) REQUIRES(image.mutex) {
  if (!image.is_library) return image.context;
  const std::uint64_t of_module = image.context_of_module(handle);
  if (of_module != 0) return of_module;
  return current_context() != 0 ? current_context() : image.context;
}

}  // namespace

CUresult load_on_others(const void* start, std::size_t size, const messages::LoadImage& m,
                        std::uint64_t context, Image& library) {
  CUresult result = CUDA_SUCCESS;
  for (unsigned n = 0; n < runtime().workers() && result == CUDA_SUCCESS; ++n) {
    const WorkerLink& worker = runtime().worker(n);
    if (&worker != &worker_of_context(context)) result = load_on(worker, start, size, m, library);
  }
  return result;
}

void unload_on_others(const Image& library, const messages::UnloadImage& m) {
  for (const auto& [number, ordinals] : library.ordinals) {
    static_cast<void>(post(m, context_on(runtime().worker(number))));
  }
}

std::uint32_t ordinal_on(const Image& library, const WorkerLink& worker, std::uint32_t ordinal) {
  const auto found = library.ordinals.find(worker.index);
  return found == library.ordinals.end() ? ordinal : found->second[ordinal];
}

CUresult function_of_kernel(std::uint64_t kernel, std::uint64_t& function) {
  Function* const object = tables().kernels.find(kernel);
  if (object == nullptr) return bad_handle(wire::Kind::kernel);
  const auto image = find_image(object->image);
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t context = current_context();
  if (context == 0) context = image->context;
  const MutexLock lock(image->mutex);
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

CUresult find_global(Image& image, std::uint64_t handle, const char* name, CUdeviceptr& address,
                     std::size_t& size) {
  const MutexLock lock(image.mutex);
  const std::uint64_t context = context_of_variables(image, handle);
  const std::pair<std::uint64_t, std::string> key{context, name};
  if (const auto found = image.globals.find(key); found != image.globals.end()) {
    address = found->second.address;
    size = found->second.size;
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
  const Context* const its = tables().contexts.find(context);
  const int device = its != nullptr ? its->device : worker_of_context(context).first_device.load();
  remember_global(image.globals[key] = {address, size, device});
  return CUDA_SUCCESS;
}

CUresult set_function_attribute(const Function& function, std::uint64_t handle, int attribute, int value,
                                std::uint64_t context) {
  if (find_image(function.image) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (context == 0) {
    if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  }
  messages::SetFunctionAttribute m;
  m.function = handle;
  m.attribute = attribute;
  m.value = value;
  return post(m, context);
}

CUresult bind_module_of_library(const Image& library, std::uint64_t module, std::uint64_t context) {
  messages::BindModuleOfLibrary m;
  m.module = module;
  m.library = library.handle;
  return post_for(library, context, m);
}

}  // namespace gpupool::client
