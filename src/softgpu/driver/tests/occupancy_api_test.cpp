// Occupancy through the C interface: from what device and kernel say of themselves, NVIDIA's calculator gets
// the same figures.
#include <cuda_occupancy.h>

#include <algorithm>

#include "driver_fixture.h"

namespace {

// Many registers, some shared memory, blocks of at most 512 threads.
constexpr const char* heavy_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry heavy(.param .u64 out)
.maxntid 512, 1, 1
{
    .reg .b64 %rd<34>;
    .shared .align 8 .b8 buffer[6000];
    ld.param.u64 %rd0, [out];
    ld.global.u64 %rd1, [%rd0];     ld.global.u64 %rd2, [%rd0+8];   ld.global.u64 %rd3, [%rd0+16];
    ld.global.u64 %rd4, [%rd0+24];  ld.global.u64 %rd5, [%rd0+32];  ld.global.u64 %rd6, [%rd0+40];
    ld.global.u64 %rd7, [%rd0+48];  ld.global.u64 %rd8, [%rd0+56];  ld.global.u64 %rd9, [%rd0+64];
    ld.global.u64 %rd10, [%rd0+72]; ld.global.u64 %rd11, [%rd0+80]; ld.global.u64 %rd12, [%rd0+88];
    bar.sync 0;
    st.shared.u64 [buffer], %rd1;
    st.global.u64 [%rd0], %rd12;    st.global.u64 [%rd0+8], %rd11;  st.global.u64 [%rd0+16], %rd10;
    st.global.u64 [%rd0+24], %rd9;  st.global.u64 [%rd0+32], %rd8;  st.global.u64 [%rd0+40], %rd7;
    st.global.u64 [%rd0+48], %rd6;  st.global.u64 [%rd0+56], %rd5;  st.global.u64 [%rd0+64], %rd4;
    st.global.u64 [%rd0+72], %rd3;  st.global.u64 [%rd0+80], %rd2;  st.global.u64 [%rd0+88], %rd1;
    ret;
}
)";

int device_says(CUdevice_attribute id) {
  int value = -1;
  REQUIRE_CUDA(cuDeviceGetAttribute(&value, id, 0));
  return value;
}

int kernel_says(CUfunction function, CUfunction_attribute id) {
  int value = -1;
  REQUIRE_CUDA(cuFuncGetAttribute(&value, id, function));
  return value;
}

cudaOccDeviceProp told_device() {
  cudaOccDeviceProp device;
  const auto bytes = [](CUdevice_attribute id) { return static_cast<std::size_t>(device_says(id)); };
  device.computeMajor = device_says(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  device.computeMinor = device_says(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  device.maxThreadsPerBlock = device_says(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  device.maxThreadsPerMultiprocessor = device_says(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  device.regsPerBlock = device_says(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  device.regsPerMultiprocessor = device_says(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  device.warpSize = device_says(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  device.sharedMemPerBlock = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  device.sharedMemPerMultiprocessor = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  device.numSms = device_says(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  device.sharedMemPerBlockOptin = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  device.reservedSharedMemPerBlock = bytes(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  return device;
}

cudaOccFuncAttributes told_kernel(CUfunction function) {
  cudaOccFuncAttributes kernel;
  kernel.maxThreadsPerBlock = kernel_says(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  kernel.numRegs = kernel_says(function, CU_FUNC_ATTRIBUTE_NUM_REGS);
  kernel.sharedSizeBytes =
      static_cast<std::size_t>(kernel_says(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  kernel.maxDynamicSharedSizeBytes =
      static_cast<std::size_t>(kernel_says(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
  kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
  kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  return kernel;
}

int active_blocks(CUfunction function, int threads, std::size_t dynamic) {
  int blocks = -1;
  REQUIRE_CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, dynamic));
  return blocks;
}

}  // namespace

TEST_CASE("the driver's occupancy follows from the attributes of device and kernel") {
  CurrentContext context;
  const LoadedKernel light(saxpy_ptx, "saxpy"), heavy(heavy_ptx, "heavy");
  const cudaOccDeviceProp device = told_device();
  const cudaOccDeviceState no_preference{};
  for (CUfunction function : {light.function, heavy.function}) {
    const cudaOccFuncAttributes kernel = told_kernel(function);
    CHECK_GT(kernel.numRegs, 0);
    for (int threads = 1; threads <= kernel.maxThreadsPerBlock; threads += 31) {
      for (const std::size_t dynamic : {0, 1 << 10, 20 << 10, 40 << 10}) {
        CAPTURE(threads);
        CAPTURE(dynamic);
        cudaOccResult expected{};
        REQUIRE_EQ(cudaOccMaxActiveBlocksPerMultiprocessor(&expected, &device, &kernel, &no_preference,
                                                           threads, dynamic),
                   CUDA_OCC_SUCCESS);
        CHECK_EQ(active_blocks(function, threads, dynamic), expected.activeBlocksPerMultiprocessor);
      }
    }
  }
  CHECK_EQ(active_blocks(heavy.function, 513, 0), 0);  // launch bounds
}

TEST_CASE("the block size that the driver advises holds the most threads") {
  CurrentContext context;
  const LoadedKernel heavy(heavy_ptx, "heavy");
  int grid = 0, block = 0;
  REQUIRE_CUDA(cuOccupancyMaxPotentialBlockSize(&grid, &block, heavy.function, nullptr, 0, 0));
  int most = 0;
  for (int threads = 32; threads <= 512; threads += 32)
    most = std::max(most, threads * active_blocks(heavy.function, threads, 0));
  CHECK_EQ(block * active_blocks(heavy.function, block, 0), most);
  CHECK_EQ(grid,
           active_blocks(heavy.function, block, 0) * device_says(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
}

TEST_CASE("a cooperative grid may be as large as occupancy says, and no larger") {
  CurrentContext context;
  const LoadedKernel heavy(heavy_ptx, "heavy");
  CUdeviceptr out = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&out, 96));
  REQUIRE_CUDA(cuMemsetD8_v2(out, 0, 96));
  void* parameters[] = {&out};
  const auto resident = static_cast<unsigned>(active_blocks(heavy.function, 256, 0) *
                                              device_says(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  CHECK_CUDA(cuLaunchCooperativeKernel(heavy.function, resident, 1, 1, 256, 1, 1, 0, nullptr, parameters));
  CHECK_RESULT(
      cuLaunchCooperativeKernel(heavy.function, resident + 1, 1, 1, 256, 1, 1, 0, nullptr, parameters),
      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CHECK_CUDA(cuCtxSynchronize());
}
