// A fat binary with PTX, registered as a compiler would have it done.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "cudart/cuda_api.h"

extern "C" {
void** __cudaRegisterFatBinary(void* fatCubin);
void __cudaUnregisterFatBinary(void** fatCubinHandle);
void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char* deviceFun,
                            const char* deviceName, int thread_limit, uint3* tid, uint3* bid, dim3* bDim,
                            dim3* gDim, int* wSize);
void __cudaRegisterVar(void** fatCubinHandle, char* hostVar, char* deviceAddress, const char* deviceName,
                       int ext, size_t size, int constant, int global);
cudaError_t __cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr);
unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem, void* stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                               size_t sharedMem, cudaStream_t stream);
}

namespace gpupool::cudart {

class TestProgram {
 public:
  explicit TestProgram(const std::string& ptx) {
    append(std::uint32_t{0xba55ed50}, std::uint16_t{1}, std::uint16_t{16});
    const std::uint64_t padded = (ptx.size() + 8) / 8 * 8;
    append(std::uint64_t{64 + padded});
    append(std::uint16_t{1}, std::uint16_t{0x101}, std::uint32_t{64}, padded);
    append(std::uint32_t{0}, std::uint32_t{0}, std::uint32_t{0}, std::uint32_t{75});
    append(std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{0});
    image_.resize(16 + 64 + padded);
    std::memcpy(image_.data() + 80, ptx.data(), ptx.size());
    wrapper_.data = image_.data();
    handle_ = __cudaRegisterFatBinary(&wrapper_);
  }
  ~TestProgram() { unregister(); }
  TestProgram(const TestProgram&) = delete;
  TestProgram& operator=(const TestProgram&) = delete;

  void kernel(const void* host, const char* name) {
    __cudaRegisterFunction(handle_, static_cast<const char*>(host), nullptr, name, -1, nullptr, nullptr,
                           nullptr, nullptr, nullptr);
  }
  void variable(void* host, const char* name, size_t size) {
    __cudaRegisterVar(handle_, static_cast<char*>(host), nullptr, name, 0, size, 0, 0);
  }
  void unregister() {
    if (handle_ != nullptr) __cudaUnregisterFatBinary(handle_);
    handle_ = nullptr;
  }

 private:
  template <class... Values>
  void append(Values... values) {
    const auto one = [this](auto value) {
      const std::size_t at = image_.size();
      image_.resize(at + sizeof(value));
      std::memcpy(image_.data() + at, &value, sizeof(value));
    };
    (one(values), ...);
  }

  struct {
    unsigned magic = 0x466243b1, version = 1;
    const void* data = nullptr;
    const void* more = nullptr;
  } wrapper_;
  std::vector<char> image_;
  void** handle_ = nullptr;
};

}  // namespace gpupool::cudart
