// The runtime API over the software GPU, as a program sees it: memory, errors, contexts.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cudart/cuda_api.h"
#include "cudart/error.h"

extern "C" {
cudaError_t cudaMemcpy_ptds(void* dst, const void* src, size_t count, cudaMemcpyKind kind);
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream);
cudaError_t cudaMemsetAsync_ptsz(void* devPtr, int value, size_t count, cudaStream_t stream);
// Deprecated under their own names.
cudaError_t copy_to_array(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src, size_t count,
                          cudaMemcpyKind kind) __asm__("cudaMemcpyToArray");
cudaError_t copy_from_array(void* dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count,
                            cudaMemcpyKind kind) __asm__("cudaMemcpyFromArray");
cudaError_t copy_array_to_array(cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst, cudaArray_const_t src,
                                size_t wOffsetSrc, size_t hOffsetSrc, size_t count,
                                cudaMemcpyKind kind) __asm__("cudaMemcpyArrayToArray");
}

namespace {

template <class Function>
Function driver_function(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::string name(cudaError_t error) {
  return cudaGetErrorName(error);
}

}  // namespace

TEST_CASE("every error has the name of its enumerator and a sentence") {
  CHECK(name(cudaErrorMemoryAllocation) == "cudaErrorMemoryAllocation");
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(std::string(cudaGetErrorString(cudaErrorLaunchMaxDepthExceeded)) == "launch max depth exceeded");
  CHECK(name(static_cast<cudaError_t>(54321)) == "unrecognized error code");
}

TEST_CASE("the last error is a thread's own, and told once") {
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaMalloc(nullptr, 8) == cudaErrorInvalidValue);
  CHECK(cudaFree(nullptr) == cudaSuccess);  // success does not take it away
  std::thread([] { CHECK(cudaPeekAtLastError() == cudaSuccess); }).join();
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("versions, devices and properties") {
  int version = 0, count = 0, device = -1, warp = 0;
  CHECK(cudaRuntimeGetVersion(&version) == cudaSuccess);
  CHECK(version == CUDART_VERSION);
  CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
  CHECK(version >= CUDART_VERSION / 1000 * 1000);
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  REQUIRE(count >= 1);
  CHECK(cudaSetDevice(count) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(0) == cudaSuccess);
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 0);
  CHECK(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, 0) == cudaSuccess);
  cudaDeviceProp properties;
#if CUDART_VERSION < 13000
  CHECK(cudaGetDeviceProperties_v2(&properties, 0) == cudaSuccess);
#else
  CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
#endif
  CHECK(std::string(properties.name).find("Software GPU") != std::string::npos);
  CHECK(properties.warpSize == warp);
  CHECK(properties.totalGlobalMem > 0);
  CHECK(properties.maxThreadsPerBlock == 1024);
}

#if CUDART_VERSION < 13000
TEST_CASE("the older name of the properties writes no more than the older structure") {
  struct {
    cudaDeviceProp properties;
  } room;
  auto* const bytes = reinterpret_cast<unsigned char*>(&room.properties);
  std::fill_n(bytes, sizeof(room.properties), 0xab);
  CHECK(cudaGetDeviceProperties(&room.properties, 0) == cudaSuccess);
  CHECK(room.properties.warpSize == 32);
  CHECK(bytes[offsetof(cudaDeviceProp, hostRegisterSupported)] == 0xab);
}
#endif

TEST_CASE("nothing is allocated for nothing, and freeing nothing is no error") {
  void* pointer = &pointer;
  CHECK(cudaMalloc(&pointer, 0) == cudaSuccess);
  CHECK(pointer == nullptr);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaFreeHost(nullptr) == cudaSuccess);
  CHECK(cudaMalloc(&pointer, size_t{1} << 60) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
}

TEST_CASE("copies go where the addresses say") {
  std::vector<unsigned char> from(1000), to(1000);
  for (size_t n = 0; n < from.size(); ++n) from[n] = static_cast<unsigned char>(n);
  void* device = nullptr;
  REQUIRE(cudaMalloc(&device, 1000) == cudaSuccess);
  CHECK(cudaMemcpy(device, from.data(), 1000, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemcpy(to.data(), device, 1000, cudaMemcpyDefault) == cudaSuccess);
  CHECK(from == to);
  CHECK(cudaMemcpy(device, from.data(), 10, static_cast<cudaMemcpyKind>(7)) ==
        cudaErrorInvalidMemcpyDirection);
  CHECK(cudaGetLastError() == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaMemsetAsync_ptsz(device, 9, 1000, nullptr) == cudaSuccess);
  CHECK(cudaStreamSynchronize_ptsz(nullptr) == cudaSuccess);
  CHECK(cudaMemcpy_ptds(to.data(), device, 1000, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(to == std::vector<unsigned char>(1000, 9));
  CHECK(cudaFree(device) == cudaSuccess);
}

TEST_CASE("rectangles and boxes keep their pitch") {
  void* device = nullptr;
  size_t pitch = 0;
  REQUIRE(cudaMallocPitch(&device, &pitch, 100, 8) == cudaSuccess);
  CHECK(pitch >= 100);
  CHECK(cudaMemset2D(device, pitch, 1, 100, 8) == cudaSuccess);
  std::vector<unsigned char> part(30 * 4, 7), all(100 * 8);
  CHECK(cudaMemcpy2D(static_cast<char*>(device) + 2 * pitch + 10, pitch, part.data(), 30, 30, 4,
                     cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemcpy2D(all.data(), 100, device, pitch, 100, 8, cudaMemcpyDeviceToHost) == cudaSuccess);
  int sevens = 0, ones = 0;
  for (const unsigned char value : all) (value == 7 ? sevens : ones) += 1;
  CHECK(sevens == 120);
  CHECK(ones == 680);
  CHECK(all[210] == 7);
  CHECK(all[209] == 1);
  CHECK(cudaMemcpy2D(all.data(), 20, device, pitch, 100, 8, cudaMemcpyDeviceToHost) ==
        cudaErrorInvalidPitchValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidPitchValue);
  CHECK(cudaFree(device) == cudaSuccess);

  cudaPitchedPtr box{};
  REQUIRE(cudaMalloc3D(&box, {16, 4, 3}) == cudaSuccess);
  CHECK(cudaMemset3D(box, 5, {16, 4, 3}) == cudaSuccess);
  CHECK(cudaMemset3D(box, 6, {8, 2, 3}) == cudaSuccess);
  std::vector<unsigned char> host(16 * 4 * 3);
  cudaMemcpy3DParms copy{};
  copy.srcPtr = box;
  copy.dstPtr = {host.data(), 16, 16, 4};
  copy.extent = {16, 4, 3};
  copy.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&copy) == cudaSuccess);
  int sixes = 0;
  for (const unsigned char value : host) sixes += value == 6;
  CHECK(sixes == 8 * 2 * 3);
  CHECK(host[64 + 16 + 7] == 6);
  CHECK(host[64 + 32] == 5);
  CHECK(cudaFree(box.ptr) == cudaSuccess);
}

TEST_CASE("a copy with an array needs a direction that there is") {
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc bytes{8, 0, 0, 0, cudaChannelFormatKindUnsigned};
  REQUIRE(cudaMallocArray(&array, &bytes, 64, 4, 0) == cudaSuccess);
  std::vector<unsigned char> host(64 * 4);
  const auto wrong = static_cast<cudaMemcpyKind>(7);
  constexpr auto refused = cudaErrorInvalidMemcpyDirection;
  CHECK(cudaMemcpy2DToArray(array, 0, 0, host.data(), 64, 64, 4, wrong) == refused);
  CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, host.data(), 64, 64, 4, wrong, nullptr) == refused);
  CHECK(cudaMemcpy2DFromArray(host.data(), 64, array, 0, 0, 64, 4, wrong) == refused);
  CHECK(cudaMemcpy2DFromArrayAsync(host.data(), 64, array, 0, 0, 64, 4, wrong, nullptr) == refused);
  CHECK(cudaMemcpy2DArrayToArray(array, 0, 0, array, 0, 2, 64, 2, wrong) == refused);
  CHECK(copy_to_array(array, 0, 0, host.data(), 64, wrong) == refused);
  CHECK(copy_from_array(host.data(), array, 0, 0, 64, wrong) == refused);
  CHECK(copy_array_to_array(array, 0, 0, array, 0, 2, 64, wrong) == refused);
  CHECK(cudaGetLastError() == refused);
  CHECK(cudaFreeArray(array) == cudaSuccess);
}

TEST_CASE("a pointer is told by what it points to") {
  cudaPointerAttributes attributes{};
  int on_stack = 0;
  void *device = nullptr, *pinned = nullptr;
  CHECK(cudaPointerGetAttributes(&attributes, &on_stack) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  REQUIRE(cudaMalloc(&device, 64) == cudaSuccess);
  CHECK(cudaPointerGetAttributes(&attributes, device) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  CHECK(attributes.devicePointer == device);
  REQUIRE(cudaMallocHost(&pinned, 64) == cudaSuccess);
  CHECK(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(attributes.hostPointer == pinned);
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("a context that was taken away through the driver API comes back") {
  void* device = nullptr;
  REQUIRE(cudaMalloc(&device, 64) == cudaSuccess);
  const auto set_current = driver_function<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
  REQUIRE(set_current(nullptr) == CUDA_SUCCESS);
  CHECK(cudaMemset(device, 1, 64) == cudaSuccess);
  CHECK(cudaFree(device) == cudaSuccess);
}

TEST_CASE("a program's own context is used, and is not replaced when it is destroyed") {
  std::thread([] {
    using Create = CUresult (*)(CUcontext*, CUctxCreateParams*, unsigned, CUdevice);
    CUcontext own = nullptr, owner = nullptr;
    REQUIRE(driver_function<Create>("cuCtxCreate_v4")(&own, nullptr, 0, 0) == CUDA_SUCCESS);
    void* device = nullptr;
    REQUIRE(cudaMalloc(&device, 64) == cudaSuccess);
    using Get = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);
    CHECK(driver_function<Get>("cuPointerGetAttribute")(
              &owner, CU_POINTER_ATTRIBUTE_CONTEXT, reinterpret_cast<CUdeviceptr>(device)) == CUDA_SUCCESS);
    CHECK(owner == own);
    CHECK(driver_function<CUresult (*)(CUcontext)>("cuCtxDestroy_v2")(own) == CUDA_SUCCESS);
  }).join();
}

TEST_CASE("after a reset every thread works again") {
  void* device = nullptr;
  REQUIRE(cudaMalloc(&device, 64) == cudaSuccess);
  std::thread([] { CHECK(cudaDeviceReset() == cudaSuccess); }).join();
  CHECK(cudaMalloc(&device, 64) == cudaSuccess);
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaDeviceReset() == cudaSuccess);
  CHECK(cudaMalloc(&device, 64) == cudaSuccess);
  CHECK(cudaFree(device) == cudaSuccess);
}

TEST_CASE("a query that is not ready, and an event that was never recorded, are told as such") {
  cudaEvent_t first = nullptr, second = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&first, cudaEventDisableTiming) == cudaSuccess);
  REQUIRE(cudaEventCreate(&second) == cudaSuccess);
  CHECK(cudaEventQuery(first) == cudaSuccess);
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, first, second) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(first) == cudaSuccess);
  CHECK(cudaEventDestroy(second) == cudaSuccess);
}

TEST_CASE("work that is not done yet is told by the query, and is not the last error") {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  std::atomic<bool> go{false};
  CHECK(cudaLaunchHostFunc(
            stream, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); }, &go) ==
        cudaSuccess);
  CHECK(cudaEventRecord(event, stream) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
  go = true;
  go.notify_all();
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("the driver's entry points are found by name, NVIDIA's private tables are not") {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
#if CUDART_VERSION < 13000
  CHECK(cudaGetDriverEntryPoint("cuMemAlloc", &found, cudaEnableDefault, &status) == cudaSuccess);
#else
  CHECK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &found, 12000, cudaEnableDefault, &status) ==
        cudaSuccess);
#endif
  CHECK(status == cudaDriverEntryPointSuccess);
  CHECK(found != nullptr);
  CHECK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &found, 12000, cudaEnableDefault, &status) ==
        cudaSuccess);
  CHECK(status == cudaDriverEntryPointSymbolNotFound);
  CHECK(found == nullptr);
  const void* table = &table;
  const cudaUUID_t id{};
  CHECK(cudaGetExportTable(&table, &id) == cudaErrorSymbolNotFound);
  CHECK(table == nullptr);
  CHECK(cudaGetLastError() == cudaErrorSymbolNotFound);
}

TEST_CASE("callbacks and host functions run in the order of their stream") {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  std::vector<int> order;
  CHECK(cudaStreamAddCallback(
            stream,
            [](cudaStream_t, cudaError_t status, void* data) {
              static_cast<std::vector<int>*>(data)->push_back(status == cudaSuccess ? 1 : -1);
            },
            &order, 0) == cudaSuccess);
  CHECK(cudaLaunchHostFunc(
            stream, [](void* data) { static_cast<std::vector<int>*>(data)->push_back(2); }, &order) ==
        cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(order == std::vector<int>{1, 2});
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("what is not supported says so") {
  CHECK(cudaGraphicsMapResources(0, nullptr, nullptr) == cudaErrorNotSupported);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
}
