// The range of device addresses that one device of the session uses, and what is mapped into it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

#include "worker/driver.h"
#include "worker/memory_account.h"

namespace gpupool::worker {

/// Not thread-safe: the executing thread alone uses it.
class DeviceArena {
 public:
  static constexpr std::uint64_t span = std::uint64_t{1} << 40;

  /// Reserves `span` addresses, at `wish` if the driver agrees. Throws std::runtime_error.
  DeviceArena(const DriverApi& api, CUdevice device, MemoryAccount& account, std::uint64_t wish);

  /// Gives `size` bytes at `address` memory, counted against the share. CUDA_ERROR_OUT_OF_MEMORY over the
  /// share; CUDA_ERROR_INVALID_VALUE when the range is outside, misaligned or already mapped.
  CUresult map(std::uint64_t address, std::uint64_t size);
  /// Takes back exactly what one map gave.
  CUresult unmap(std::uint64_t address);
  /// Takes everything back.
  void clear();

  /// Whether the whole range is mapped.
  [[nodiscard]] bool covers(std::uint64_t address, std::uint64_t size) const;
  /// Whether the whole range is mapped and the CPU can reach it at the same addresses.
  [[nodiscard]] bool reachable_by_host(std::uint64_t address, std::uint64_t size) const {
    return host_reachable_ && covers(address, size);
  }
  /// Whether the address lies in the arena, mapped or not.
  [[nodiscard]] bool contains(std::uint64_t address) const {
    return address >= base_ && address - base_ < span;
  }

  [[nodiscard]] std::uint64_t base() const { return base_; }
  [[nodiscard]] std::uint64_t granularity() const { return granularity_; }
  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] std::uint64_t limit() const { return account_.limit(); }

 private:
  [[nodiscard]] bool overlaps(std::uint64_t address, std::uint64_t size) const;

  const DriverApi& api_;
  CUdevice device_;
  MemoryAccount& account_;
  std::uint64_t base_ = 0;
  std::uint64_t granularity_ = 0;
  bool host_reachable_ = false;
  std::map<std::uint64_t, std::uint64_t> mapped_;  // address -> size
};

}  // namespace gpupool::worker
