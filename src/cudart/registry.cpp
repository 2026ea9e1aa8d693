#include "cudart/registry.h"

#include <dlfcn.h>

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cudart/call.h"
#include "cudart/registration.h"
#include "cudart/symbol_table.h"

namespace gpupool::cudart {

namespace {

struct Registry {
  Mutex mutex;
  // Changed under the mutex, read without it.
  SymbolTable<Kernel> kernels;
  SymbolTable<Variable> variables;
  SymbolTable<Kernel> by_handle;
  // Whatever was registered: forgotten one day, but never freed, as another thread may be in the middle of a
  // launch of it.
  std::vector<std::unique_ptr<FatBinary>> every_binary GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Kernel>> every_kernel GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Variable>> every_variable GUARDED_BY(mutex);
};

/// Never destroyed: libraries register and unregister while the process starts and ends.
Registry& registry() {
  static auto* const made = new Registry;
  return *made;
}

bool depends_on_image_only(CUresult result) {
  return result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE ||
         result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

}  // namespace

CUresult FatBinary::library(CUlibrary& library) {
  const unsigned now = driver_session.load(std::memory_order_relaxed)();
  const auto is_loaded = [&] {
    const bool of_now = session_.load(std::memory_order_acquire) == now;
    library = library_.load(std::memory_order_acquire);
    return of_now && library != nullptr;
  };
  if (is_loaded()) return CUDA_SUCCESS;
  const MutexLock lock(mutex_);
  if (is_loaded()) return CUDA_SUCCESS;
  if (hopeless_ != CUDA_SUCCESS && hopeless_in_ == now) return hopeless_;
  const bool again = library != nullptr;
  CUresult result = driver().cuLibraryLoadData(&library, image_, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS && again) result = place_managed(library);
  if (result == CUDA_SUCCESS) {
    library_.store(library, std::memory_order_release);
    session_.store(now, std::memory_order_release);
  }
  if (depends_on_image_only(result)) {
    hopeless_ = result;
    hopeless_in_ = now;
  }
  return result;
}

/// Where the program finds its managed variables.
CUresult FatBinary::place_managed(CUlibrary library) {
  for (const Variable* const variable : managed) {
    CUdeviceptr address = 0;
    std::size_t size = 0;
    if (const CUresult bad = driver().cuLibraryGetManaged(&address, &size, library, variable->name);
        bad != CUDA_SUCCESS)
      return bad;
    *variable->host_pointer = as<void*>(address);
  }
  return CUDA_SUCCESS;
}

void FatBinary::unload() {
  const MutexLock lock(mutex_);
  const CUlibrary library = library_.exchange(nullptr);
  if (library != nullptr && !process_ends()) driver().cuLibraryUnload(library);
}

FatBinary* register_binary(const void* image) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  return all.every_binary.emplace_back(std::make_unique<FatBinary>(image)).get();
}

void register_kernel(FatBinary& binary, const void* host, const char* name) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  binary.symbols.push_back(host);
  all.every_kernel.emplace_back(new Kernel{&binary, name, host, {}});
  all.kernels.put(host, all.every_kernel.back().get());
}

void register_variable(FatBinary& binary, const void* host, const char* name, std::size_t size,
                       void** host_pointer) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  binary.symbols.push_back(host);
  all.every_variable.emplace_back(new Variable{&binary, name, size, host_pointer});
  Variable* const made = all.every_variable.back().get();
  all.variables.put(host, made);
  if (host_pointer != nullptr) binary.managed.push_back(made);
}

void unregister_binary(FatBinary& binary) {
  Registry& all = registry();
  {
    const MutexLock lock(all.mutex);
    for (const void* const host : binary.symbols) {
      all.kernels.put(host, nullptr);
      all.variables.put(host, nullptr);
    }
    binary.symbols.clear();
  }
  binary.unload();
}

cudaError_t fill_managed_variables(FatBinary& binary) {
  if (binary.managed.empty()) return cudaSuccess;
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  CUlibrary library = nullptr;
  if (const CUresult bad = binary.library(library); bad != CUDA_SUCCESS) return translate(bad);
  return translate(binary.place_managed(library));
}

Kernel* find_kernel(const void* host) {
  return registry().kernels.find(host);
}

Kernel* find_kernel(CUkernel handle) {
  return registry().by_handle.find(handle);
}

cudaError_t load_kernel(Kernel& kernel, CUkernel& handle) {
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  const unsigned now = driver_session.load(std::memory_order_relaxed)();
  CUlibrary library = nullptr;
  CUresult result = kernel.binary->library(library);
  if (lost_context(result) && regain_context(result)) result = kernel.binary->library(library);
  if (result != CUDA_SUCCESS) return translate(result);
  result = driver().cuLibraryGetKernel(&handle, library, kernel.name);
  if (result == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
  if (result != CUDA_SUCCESS) return translate(result);
  kernel.handle.store(handle, std::memory_order_release);
  kernel.session.store(now, std::memory_order_release);
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.by_handle.put(handle, &kernel);
  return cudaSuccess;
}

cudaError_t kernel_handle(const void* function, CUkernel& handle) {
  if (Kernel* const kernel = find_kernel(function)) [[likely]]
    return loaded_kernel(*kernel, handle);
  // A handle from cudaGetKernel or cudaLibraryGetKernel may stand in for the function. A host function that
  // nobody registered lies in a loaded object; a handle does not.
  Dl_info object;
  if (function == nullptr || dladdr(function, &object) != 0) return cudaErrorInvalidDeviceFunction;
  handle = reinterpret_cast<CUkernel>(const_cast<void*>(function));
  return enter();
}

cudaError_t variable_address(const void* symbol, CUdeviceptr& address, std::size_t& size) {
  const Variable* const variable = registry().variables.find(symbol);
  if (variable == nullptr) return cudaErrorInvalidSymbol;
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  CUlibrary library = nullptr;
  if (const CUresult bad = variable->binary->library(library); bad != CUDA_SUCCESS) return translate(bad);
  const cudaError_t result = forward([&](const EntryPoints& d) {
    return variable->host_pointer != nullptr ? d.cuLibraryGetManaged(&address, &size, library, variable->name)
                                             : d.cuLibraryGetGlobal(&address, &size, library, variable->name);
  });
  return result == cudaErrorSymbolNotFound ? cudaErrorInvalidSymbol : result;
}

}  // namespace gpupool::cudart
