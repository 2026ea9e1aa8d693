// What compiled programs register at their start: fat binaries, kernels, variables. A fat binary goes to the
// driver, as a library and as a whole, when the first of its symbols is needed.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/mutex.h"
#include "cudart/driver.h"

namespace gpupool::cudart {

class FatBinary {
 public:
  explicit FatBinary(const void* image) : image_(image) {}

  /// Loads it if it is not loaded. Needs a context.
  CUresult library(CUlibrary& library);
  /// Tells the program where its managed variables are. Needs the library, loaded.
  CUresult place_managed(CUlibrary library);
  void unload();

  std::vector<const void*> symbols;  ///< host addresses registered with it; guarded by the registry
  std::vector<struct Variable*> managed;

 private:
  const void* image_;
  Mutex mutex_;  // held while the driver loads: a second caller needs the same answer
  std::atomic<CUlibrary> library_{nullptr};
  std::atomic<unsigned> session_{0};  // of the driver, that the library was loaded in; written after it
  CUresult hopeless_ GUARDED_BY(mutex_) = CUDA_SUCCESS;  // an image that no later attempt can load
  unsigned hopeless_in_ GUARDED_BY(mutex_) = 0;  // in this session: another one may have other devices
};

struct Kernel {
  FatBinary* binary;
  const char* name;
  const void* host;
  std::atomic<CUkernel> handle{nullptr};
  std::atomic<unsigned> session{0};  ///< of the driver, that the handle is of; written after it
};

struct Variable {
  FatBinary* binary;
  const char* name;
  std::size_t size;
  void** host_pointer = nullptr;  ///< of a managed variable: where the program keeps its address
};

/// The kernel of a host function; null when none is registered at that address.
Kernel* find_kernel(const void* host);
/// The kernel that has this handle, for descriptions that are read back; null when it was not registered.
Kernel* find_kernel(CUkernel handle);

/// The driver's handle of a kernel, given as a registered host function, or as a handle itself.
cudaError_t kernel_handle(const void* function, CUkernel& handle);
/// The slow half of it: loads the fat binary.
cudaError_t load_kernel(Kernel& kernel, CUkernel& handle);
/// The driver's handle of a registered kernel.
inline cudaError_t loaded_kernel(Kernel& kernel, CUkernel& handle) {
  const unsigned session = kernel.session.load(std::memory_order_acquire);
  handle = kernel.handle.load(std::memory_order_acquire);
  const bool loaded = handle != nullptr && session == driver_session.load(std::memory_order_relaxed)();
  return loaded ? cudaSuccess : load_kernel(kernel, handle);
}

/// Address and size of a variable in the current context, given by its host address.
cudaError_t variable_address(const void* symbol, CUdeviceptr& address, std::size_t& size);

}  // namespace gpupool::cudart
