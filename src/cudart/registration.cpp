// The functions that compiled code calls behind the programmer's back: registration and the two halves of
// `<<<>>>`.
#include "cudart/registration.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "cudart/call.h"
#include "cudart/launch.h"

using namespace gpupool::cudart;

namespace {

constexpr unsigned wrapper_magic = 0x466243b1;

/// What the compiler passes: a description whose `data` is the fat binary.
struct Wrapper {
  unsigned magic, version;
  const void* data;
  const void* more;
};

FatBinary* binary_of(void** handle) {
  return reinterpret_cast<FatBinary*>(handle);
}

/// For functions without a result. What could not be registered is not found when it is wanted.
template <class Body>
void quietly(Body&& body) noexcept {
  static_cast<void>(guarded([&] {
    std::forward<Body>(body)();
    return cudaSuccess;
  }));
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

/// A configuration waits for the stub that follows it at once, so more than one only stands here while
/// arguments of a launch themselves launch. One whose arguments threw an exception stays: the oldest gives
/// way.
struct Configurations {
  static constexpr unsigned most = 32;
  Configuration waiting[most];
  unsigned count;
};

thread_local Configurations configurations;

cudaError_t launch_registered(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                              cudaStream_t stream) {
  // The handle is what __cudaGetKernel gave: the registration, not the driver's handle.
  auto* const registered = reinterpret_cast<Kernel*>(kernel);
  if (registered == nullptr) return cudaErrorInvalidDeviceFunction;
  CUkernel handle = nullptr;
  if (const cudaError_t bad = loaded_kernel(*registered, handle); bad != cudaSuccess) return bad;
  return launch(handle, grid, block, arguments, shared, stream);
}

}  // namespace

extern "C" {

GPUPOOL_CUDART_EXPORT void** __cudaRegisterFatBinary(void* fatCubin) {
  Wrapper wrapper{};
  std::memcpy(&wrapper, fatCubin, sizeof(wrapper));
  const bool wrapped = wrapper.magic == wrapper_magic;
  try {
    return reinterpret_cast<void**>(register_binary(wrapped ? wrapper.data : fatCubin));
  } catch (const std::exception&) {  // no memory: what it holds is not found when it is wanted
    static FatBinary none(nullptr);
    return reinterpret_cast<void**>(&none);
  }
}

GPUPOOL_CUDART_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}

GPUPOOL_CUDART_EXPORT void __cudaUnregisterFatBinary(void** fatCubinHandle) {
  quietly([&] {
    if (fatCubinHandle != nullptr) unregister_binary(*binary_of(fatCubinHandle));
  });
}

GPUPOOL_CUDART_EXPORT void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char*,
                                                  const char* deviceName, int, uint3*, uint3*, dim3*, dim3*,
                                                  int*) {
  quietly([&] { register_kernel(*binary_of(fatCubinHandle), hostFun, deviceName); });
}

GPUPOOL_CUDART_EXPORT void __cudaRegisterVar(void** fatCubinHandle, char* hostVar, char*,
                                             const char* deviceName, int, size_t size, int, int) {
  quietly([&] { register_variable(*binary_of(fatCubinHandle), hostVar, deviceName, size, nullptr); });
}

GPUPOOL_CUDART_EXPORT void __cudaRegisterManagedVar(void** fatCubinHandle, void** hostVarPtrAddress, char*,
                                                    const char* deviceName, int, size_t size, int, int) {
  quietly([&] {
    register_variable(*binary_of(fatCubinHandle), hostVarPtrAddress, deviceName, size, hostVarPtrAddress);
  });
}

GPUPOOL_CUDART_EXPORT char __cudaInitModule(void** fatCubinHandle) {
  const cudaError_t error =
      guarded([&] { return record(fill_managed_variables(*binary_of(fatCubinHandle))); });
  // The caller has no way to report it, and is about to use the address.
  if (error != cudaSuccess)
    std::fprintf(stderr, "gpupool: the __managed__ variables of this program are not available: %s\n",
                 find_error(error) != nullptr ? find_error(error)->name : "unknown error");
  return error == cudaSuccess ? 1 : 0;
}

GPUPOOL_CUDART_EXPORT unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                                           cudaStream_t stream) {
  Configurations& all = configurations;
  if (all.count == Configurations::most) {
    std::copy(all.waiting + 1, all.waiting + all.count, all.waiting);
    --all.count;
  }
  all.waiting[all.count++] = {gridDim, blockDim, sharedMem, stream};
  return 0;
}

GPUPOOL_CUDART_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem,
                                                             void* stream) {
  Configurations& all = configurations;
  if (all.count == 0) return record(cudaErrorMissingConfiguration);
  const Configuration& last = all.waiting[--all.count];
  *gridDim = last.grid;
  *blockDim = last.block;
  *sharedMem = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

// Called once for each launch site, before the first launch. It loads nothing, so that a site that was
// reached before a GPU was attached is not lost.
GPUPOOL_CUDART_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr) {
  *kernelPtr = reinterpret_cast<cudaKernel_t>(find_kernel(entryFuncAddr));
  return *kernelPtr != nullptr ? cudaSuccess : record(cudaErrorInvalidDeviceFunction);
}

GPUPOOL_CUDART_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim,
                                                     void** args, size_t sharedMem, cudaStream_t stream) {
  return guarded(
      [&] { return record(launch_registered(kernel, gridDim, blockDim, args, sharedMem, stream)); });
}

GPUPOOL_CUDART_EXPORT cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim,
                                                          void** args, size_t sharedMem,
                                                          cudaStream_t stream) {
  return guarded([&] {
    return record(launch_registered(kernel, gridDim, blockDim, args, sharedMem, per_thread(stream)));
  });
}

}  // extern "C"
