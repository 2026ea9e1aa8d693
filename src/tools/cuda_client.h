// A CUDA program as any other: finds libcuda.so.1 through the loader and calls the driver API.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpupool::bench {

/// One device, one context, an empty kernel. Every member throws std::runtime_error naming the call that
/// failed.
class CudaClient {
 public:
  CudaClient();

  void synchronize();
  void launch_empty();
  void set_one_byte(CUdeviceptr at);
  CUdeviceptr allocate(std::size_t bytes);
  void free(CUdeviceptr at);
  CUevent create_event();
  void destroy_event(CUevent event);
  void copy_in(CUdeviceptr to, const void* from, std::size_t bytes);
  void copy_out(void* to, CUdeviceptr from, std::size_t bytes);

  /// Blocking round trips that the client runtime counted so far: proof that what is called an ask was one.
  [[nodiscard]] std::uint64_t asks() const;
  [[nodiscard]] std::string device_name() const;

 private:
  template <typename Function>
  void bind(Function*& function, const char* name);

  void* library_;
  CUdevice device_ = 0;
  CUfunction empty_ = nullptr;
  decltype(cuCtxSynchronize)* synchronize_ = nullptr;
  decltype(cuLaunchKernel)* launch_ = nullptr;
  decltype(cuMemsetD8Async)* memset_ = nullptr;
  decltype(cuMemAlloc)* allocate_ = nullptr;
  decltype(cuMemFree)* free_ = nullptr;
  decltype(cuEventCreate)* event_create_ = nullptr;
  decltype(cuEventDestroy)* event_destroy_ = nullptr;
  decltype(cuMemcpyHtoD)* copy_in_ = nullptr;
  decltype(cuMemcpyDtoH)* copy_out_ = nullptr;
  int (*counters_)(char*, std::size_t, int) = nullptr;
};

}  // namespace gpupool::bench
