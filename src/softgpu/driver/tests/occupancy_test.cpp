#include "softgpu/driver/described/occupancy.h"

#include <cuda_occupancy.h>
#include <doctest/doctest.h>

using namespace softgpu::driver;

namespace {

DeviceLimits limits_of(int capability) {
  Settings settings;
  settings.capability_major = capability / 10;
  settings.capability_minor = capability % 10;
  return DeviceLimits::of(settings);
}

// NVIDIA's own calculator, with the same device and kernel.
cudaOccDeviceProp device_of(const DeviceLimits& limits, int capability) {
  cudaOccDeviceProp device;
  device.computeMajor = capability / 10;
  device.computeMinor = capability % 10;
  device.maxThreadsPerBlock = limits.threads_per_block;
  device.maxThreadsPerMultiprocessor = limits.threads_per_multiprocessor;
  device.regsPerBlock = limits.registers_per_block;
  device.regsPerMultiprocessor = limits.registers_per_multiprocessor;
  device.warpSize = 32;
  device.sharedMemPerBlock = static_cast<std::size_t>(limits.shared_per_block);
  device.sharedMemPerMultiprocessor = static_cast<std::size_t>(limits.shared_per_multiprocessor);
  device.numSms = limits.multiprocessors;
  device.sharedMemPerBlockOptin = static_cast<std::size_t>(limits.shared_per_block_optin);
  device.reservedSharedMemPerBlock = static_cast<std::size_t>(limits.reserved_shared_per_block);
  return device;
}

cudaOccFuncAttributes function_of(const KernelNeeds& kernel, bool optin) {
  cudaOccFuncAttributes function;
  function.maxThreadsPerBlock = static_cast<int>(kernel.threads_per_block);
  function.numRegs = kernel.registers;
  function.sharedSizeBytes = kernel.static_shared;
  function.partitionedGCConfig = PARTITIONED_GC_OFF;
  function.shmemLimitConfig = optin ? FUNC_SHMEM_LIMIT_OPTIN : FUNC_SHMEM_LIMIT_DEFAULT;
  function.maxDynamicSharedSizeBytes = kernel.dynamic_shared_limit;
  function.numBlockBarriers = 1;
  return function;
}

const cudaOccDeviceState no_preference{};

}  // namespace

TEST_CASE("occupancy is what NVIDIA's calculator says") {
  long compared = 0;
  for (const int capability : {75, 80, 86, 89, 90, 100, 120}) {
    CAPTURE(capability);
    const DeviceLimits limits = limits_of(capability);
    const cudaOccDeviceProp device = device_of(limits, capability);
    const auto optin_limit = static_cast<std::size_t>(limits.shared_per_block_optin);
    for (const int registers : {16, 24, 32, 40, 48, 56, 63, 64, 72, 96, 128, 168, 255}) {
      for (const std::size_t fixed : {0, 100, 8 << 10, 48 << 10}) {
        for (const bool optin : {false, true}) {
          const std::size_t dynamic_limit = (optin ? optin_limit : std::size_t{48} << 10) - fixed;
          const KernelNeeds kernel{registers, 1024, fixed, dynamic_limit};
          const cudaOccFuncAttributes function = function_of(kernel, optin);
          for (const unsigned threads :
               {1U, 32U, 33U, 64U, 96U, 128U, 160U, 192U, 256U, 384U, 512U, 768U, 1000U, 1024U}) {
            for (const std::size_t dynamic : {0, 1, 1000, 5000, 16 << 10, 33 << 10, 48 << 10, 99 << 10}) {
              cudaOccResult expected{};
              REQUIRE_EQ(
                  cudaOccMaxActiveBlocksPerMultiprocessor(&expected, &device, &function, &no_preference,
                                                          static_cast<int>(threads), dynamic),
                  CUDA_OCC_SUCCESS);
              if (active_blocks(limits, kernel, threads, dynamic) != expected.activeBlocksPerMultiprocessor) {
                CAPTURE(registers);
                CAPTURE(fixed);
                CAPTURE(optin);
                CAPTURE(threads);
                CAPTURE(dynamic);
                CHECK_EQ(active_blocks(limits, kernel, threads, dynamic),
                         expected.activeBlocksPerMultiprocessor);
              }
              ++compared;
            }
          }
        }
      }
    }
  }
  CHECK_EQ(compared, 7L * 13 * 4 * 2 * 14 * 8);
}

TEST_CASE("what dynamic shared memory is left is what NVIDIA's calculator says") {
  for (const int capability : {75, 80, 86, 90, 120}) {
    const DeviceLimits limits = limits_of(capability);
    const cudaOccDeviceProp device = device_of(limits, capability);
    for (const std::size_t fixed : {0, 100, 8 << 10}) {
      const KernelNeeds kernel{32, 1024, fixed,
                               static_cast<std::size_t>(limits.shared_per_block_optin) - fixed};
      const cudaOccFuncAttributes function = function_of(kernel, true);
      for (const unsigned threads : {32U, 128U, 256U, 1024U}) {
        for (int blocks = 1; blocks <= 33; ++blocks) {
          CAPTURE(capability);
          CAPTURE(fixed);
          CAPTURE(threads);
          CAPTURE(blocks);
          std::size_t expected = 0;
          const auto said = cudaOccAvailableDynamicSMemPerBlock(&expected, &device, &function, &no_preference,
                                                                blocks, static_cast<int>(threads));
          const auto ours = available_dynamic_shared(limits, kernel, blocks, threads);
          CHECK_EQ(ours.has_value(), said == CUDA_OCC_SUCCESS);
          if (!ours || said != CUDA_OCC_SUCCESS) continue;
          CHECK_EQ(*ours, expected);
          CHECK_GE(active_blocks(limits, kernel, threads, *ours), blocks);
        }
      }
    }
  }
}

TEST_CASE("as many registers as there may be leave room for one block, and one unit more does not") {
  const DeviceLimits limits = limits_of(120);
  for (unsigned threads = 1; threads <= 1024; ++threads) {
    const int most = most_registers(limits, threads);
    CHECK_GE(active_blocks(limits, {most, 1024, 0, 0}, threads, 0), 1);
    if (most < limits.registers_per_thread)
      CHECK_EQ(active_blocks(limits, {most + 8, 1024, 0, 0}, threads, 0), 0);
  }
  CHECK_EQ(most_registers(limits, 1024), 64);
  CHECK_EQ(most_registers(limits, 256), 255);
}
