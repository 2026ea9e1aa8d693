#include "tools/cuda_client.h"

#include <dlfcn.h>

#include <array>
#include <charconv>
#include <stdexcept>
#include <string_view>

namespace gpupool::bench {
namespace {

constexpr const char* empty_kernel =
    ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n";

void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error(std::string(call) + " returned CUDA error " + std::to_string(result));
  }
}

}  // namespace

template <typename Function>
void CudaClient::bind(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library_, name));
  if (function == nullptr) throw std::runtime_error(std::string("libcuda.so.1 does not export ") + name);
}

CudaClient::CudaClient() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
  if (library_ == nullptr) throw std::runtime_error(dlerror());
  bind(synchronize_, "cuCtxSynchronize");
  bind(launch_, "cuLaunchKernel");
  bind(memset_, "cuMemsetD8Async");
  bind(allocate_, "cuMemAlloc_v2");
  bind(free_, "cuMemFree_v2");
  bind(event_create_, "cuEventCreate");
  bind(event_destroy_, "cuEventDestroy_v2");
  bind(copy_in_, "cuMemcpyHtoD_v2");
  bind(copy_out_, "cuMemcpyDtoH_v2");
  bind(counters_, "gpupool_counters");

  decltype(cuInit)* init = nullptr;
  decltype(cuDeviceGet)* device_get = nullptr;
  decltype(cuDevicePrimaryCtxRetain)* retain = nullptr;
  decltype(cuCtxSetCurrent)* set_current = nullptr;
  decltype(cuModuleLoadData)* load = nullptr;
  decltype(cuModuleGetFunction)* get_function = nullptr;
  bind(init, "cuInit");
  bind(device_get, "cuDeviceGet");
  bind(retain, "cuDevicePrimaryCtxRetain");
  bind(set_current, "cuCtxSetCurrent");
  bind(load, "cuModuleLoadData");
  bind(get_function, "cuModuleGetFunction");

  check(init(0), "cuInit");
  check(device_get(&device_, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  check(retain(&context, device_), "cuDevicePrimaryCtxRetain");
  check(set_current(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  check(load(&module, empty_kernel), "cuModuleLoadData");
  check(get_function(&empty_, module, "empty"), "cuModuleGetFunction");
}

void CudaClient::synchronize() {
  check(synchronize_(), "cuCtxSynchronize");
}

void CudaClient::launch_empty() {
  check(launch_(empty_, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
}

void CudaClient::set_one_byte(CUdeviceptr at) {
  check(memset_(at, 0, 1, nullptr), "cuMemsetD8Async");
}

CUdeviceptr CudaClient::allocate(std::size_t bytes) {
  CUdeviceptr at = 0;
  check(allocate_(&at, bytes), "cuMemAlloc");
  return at;
}

void CudaClient::free(CUdeviceptr at) {
  check(free_(at), "cuMemFree");
}

CUevent CudaClient::create_event() {
  CUevent event = nullptr;
  check(event_create_(&event, CU_EVENT_DEFAULT), "cuEventCreate");
  return event;
}

void CudaClient::destroy_event(CUevent event) {
  check(event_destroy_(event), "cuEventDestroy");
}

void CudaClient::copy_in(CUdeviceptr to, const void* from, std::size_t bytes) {
  check(copy_in_(to, from, bytes), "cuMemcpyHtoD");
}

void CudaClient::copy_out(void* to, CUdeviceptr from, std::size_t bytes) {
  check(copy_out_(to, from, bytes), "cuMemcpyDtoH");
}

std::uint64_t CudaClient::asks() const {
  std::string json(1U << 16, '\0');
  const int length = counters_(json.data(), json.size(), 0);
  if (length <= 0) throw std::runtime_error("gpupool_counters gave nothing");
  constexpr std::string_view key = "\"asks\":";
  const std::size_t at = json.find(key);
  if (at == std::string::npos) throw std::runtime_error("gpupool_counters does not tell the asks");
  const std::size_t start = json.find_first_of("0123456789", at + key.size());
  std::uint64_t asks = 0;
  if (start != std::string::npos) std::from_chars(json.data() + start, json.data() + json.size(), asks);
  return asks;
}

std::string CudaClient::device_name() const {
  auto* get_name = reinterpret_cast<decltype(cuDeviceGetName)*>(dlsym(library_, "cuDeviceGetName"));
  std::array<char, 256> name{};
  if (get_name == nullptr || get_name(name.data(), name.size() - 1, device_) != CUDA_SUCCESS)
    return "unknown";
  return name.data();
}

}  // namespace gpupool::bench
