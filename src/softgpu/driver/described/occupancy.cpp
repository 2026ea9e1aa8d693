#include "softgpu/driver/described/occupancy.h"

#include <algorithm>

namespace softgpu::driver {
namespace {

constexpr int warp_threads = 32;

constexpr int round_up(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

// Registers are handed out to warps, in units.
int registers_per_warp(const DeviceLimits& limits, int registers) {
  return round_up(registers * warp_threads, limits.register_unit);
}

int blocks_by_registers(const DeviceLimits& limits, int registers, int warps) {
  const int per_warp = registers_per_warp(limits, registers);
  if (per_warp == 0) return limits.blocks_per_multiprocessor;
  // The check at launch takes the registers of all sub-partitions at once.
  if (registers > limits.registers_per_thread ||
      per_warp * round_up(warps, limits.sub_partitions) > limits.registers_per_block)
    return 0;
  const int warps_per_partition = limits.registers_per_multiprocessor / limits.sub_partitions / per_warp;
  return warps_per_partition * limits.sub_partitions / warps;
}

int blocks_by_shared_memory(const DeviceLimits& limits, const KernelNeeds& kernel,
                            std::size_t dynamic_shared) {
  const auto most = static_cast<std::size_t>(limits.shared_per_block_optin);
  if (dynamic_shared > kernel.dynamic_shared_limit || kernel.static_shared + dynamic_shared > most) return 0;
  const int each =
      round_up(static_cast<int>(kernel.static_shared + dynamic_shared) + limits.reserved_shared_per_block,
               limits.shared_unit);
  return each == 0 ? limits.blocks_per_multiprocessor : limits.shared_per_multiprocessor / each;
}

}  // namespace

int active_blocks(const DeviceLimits& limits, const KernelNeeds& kernel, unsigned threads_per_block,
                  std::size_t dynamic_shared) {
  if (threads_per_block == 0 || threads_per_block > kernel.threads_per_block) return 0;
  const int warps = static_cast<int>((threads_per_block + warp_threads - 1) / warp_threads);
  return std::min({limits.blocks_per_multiprocessor, limits.threads_per_multiprocessor / warp_threads / warps,
                   blocks_by_registers(limits, kernel.registers, warps),
                   blocks_by_shared_memory(limits, kernel, dynamic_shared)});
}

std::optional<std::size_t> available_dynamic_shared(const DeviceLimits& limits, const KernelNeeds& kernel,
                                                    int blocks, unsigned threads_per_block) {
  if (blocks < 1 || active_blocks(limits, kernel, threads_per_block, 0) < blocks) return std::nullopt;
  const int most = limits.shared_per_block_optin + limits.reserved_shared_per_block;
  const int part = limits.shared_per_multiprocessor / blocks / limits.shared_unit * limits.shared_unit;
  const int fixed = static_cast<int>(kernel.static_shared) + limits.reserved_shared_per_block;
  const int left = std::max(0, std::min(part, most) - fixed);
  return std::min(static_cast<std::size_t>(left), kernel.dynamic_shared_limit);
}

int most_registers(const DeviceLimits& limits, unsigned threads_per_block) {
  const int warps = round_up(static_cast<int>((threads_per_block + warp_threads - 1) / warp_threads),
                             limits.sub_partitions);
  const int per_warp =
      limits.registers_per_block / std::max(1, warps) / limits.register_unit * limits.register_unit;
  return std::min(limits.registers_per_thread, per_warp / warp_threads);
}

}  // namespace softgpu::driver
