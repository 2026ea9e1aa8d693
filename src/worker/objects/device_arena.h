// The range of device addresses that one device of the session uses, and what is mapped into it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "wire/hello.h"
#include "worker/driver/driver.h"
#include "worker/lease/memory_account.h"
#include "worker/objects/physical_memory.h"

namespace gpupool::worker {

/// Not thread-safe: the executing thread alone uses it.
class DeviceArena {
 public:
  static constexpr std::uint64_t span = wire::arena_span;

  /// Reserves `span` addresses, at `wish` if the driver agrees. Throws std::runtime_error.
  DeviceArena(const DriverApi& api, CUdevice device, MemoryAccount& account, std::uint64_t wish);

  /// Gives `size` bytes at `address` memory, counted against the share. CUDA_ERROR_OUT_OF_MEMORY over the
  /// share; CUDA_ERROR_INVALID_VALUE when the range is outside, misaligned or already mapped.
  CUresult map(std::uint64_t address, std::uint64_t size);
  /// The same with memory that the client made before. It cannot be used until access is set.
  CUresult map(std::uint64_t address, std::uint64_t size, std::uint64_t offset,
               std::shared_ptr<PhysicalMemory> memory);
  /// Whole mappings that fill the range without a gap, else CUDA_ERROR_INVALID_VALUE.
  CUresult set_access(std::uint64_t address, std::uint64_t size, CUmemAccess_flags access);
  CUresult unmap_all(std::uint64_t address, std::uint64_t size);
  /// How memory of this device has to be made: so that other processes can be given it, where that is
  /// possible.
  [[nodiscard]] const CUmemAllocationProp& properties() const { return properties_; }
  /// Takes back exactly what one map gave.
  CUresult unmap(std::uint64_t address);
  /// Takes everything back.
  void clear();

  /// The memory of the one mapping that holds the whole range; null when none does.
  [[nodiscard]] std::shared_ptr<PhysicalMemory> memory_at(std::uint64_t address, std::uint64_t size) const;
  /// Whether the whole range is mapped and can be read and written.
  [[nodiscard]] bool covers(std::uint64_t address, std::uint64_t size) const;
  /// The same, and memory that may be read only counts.
  [[nodiscard]] bool covers_readable(std::uint64_t address, std::uint64_t size) const;
  /// Whether the whole range is mapped and the CPU can reach it at the same addresses.
  [[nodiscard]] bool reachable_by_host(std::uint64_t address, std::uint64_t size) const {
    return host_reachable_ && covers(address, size);
  }
  /// The memory behind a range that lies in one mapping, and where in it the range begins; else null.
  [[nodiscard]] std::shared_ptr<PhysicalMemory> memory_at(std::uint64_t address, std::uint64_t size,
                                                          std::uint64_t& offset) const;
  /// Calls `use(address, size, offset, memory, access)` for every mapping.
  template <class F>
  void each(F use) const {
    for (const auto& [address, mapping] : mapped_) {
      use(address, mapping.size, mapping.offset, mapping.memory, mapping.access);
    }
  }
  /// Whether the address lies in the arena, mapped or not.
  [[nodiscard]] bool contains(std::uint64_t address) const {
    return address >= base_ && address - base_ < span;
  }

  [[nodiscard]] std::uint64_t base() const { return base_; }
  [[nodiscard]] std::uint64_t granularity() const { return granularity_; }
  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] std::uint64_t limit() const { return account_.room(); }

 private:
  struct Mapping {
    std::uint64_t size;
    std::shared_ptr<PhysicalMemory> memory;
    CUmemAccess_flags access;
    std::uint64_t offset;  ///< in the memory

    [[nodiscard]] bool usable() const { return access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE; }
  };
  template <class Counts>
  [[nodiscard]] bool covered(std::uint64_t address, std::uint64_t size, Counts counts) const;
  [[nodiscard]] bool overlaps(std::uint64_t address, std::uint64_t size) const;
  /// Inside the arena, in whole granules, free.
  [[nodiscard]] bool vacant(std::uint64_t address, std::uint64_t size) const;
  [[nodiscard]] bool whole_mappings(std::uint64_t address, std::uint64_t size) const;
  void try_host(std::uint64_t address);

  const DriverApi& api_;
  CUdevice device_;
  CUmemAllocationProp properties_;  // of the memory that it makes
  MemoryAccount& account_;
  std::uint64_t base_ = 0;
  std::uint64_t granularity_ = 0;
  bool host_reachable_ = false, host_asked_ = false;
  std::map<std::uint64_t, Mapping> mapped_;  // by address
};

}  // namespace gpupool::worker
