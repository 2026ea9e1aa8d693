// Host memory that the program allocated through CUDA or registered with it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <map>
#include <optional>

#include "base/mutex.h"

namespace gpupool::client {

class HostMemory {
 public:
  struct Region {
    std::uintptr_t address = 0;
    std::size_t size = 0;
    unsigned flags = 0;
    bool registered = false;  ///< by cuMemHostRegister: the memory is the program's
    bool coherent = false;    ///< of DeviceMemory: the device uses it at the same addresses
  };

  CUresult allocate(std::size_t size, unsigned flags, void*& out);
  /// The same for memory that the device uses too, in the current context.
  CUresult allocate_mapped(std::size_t size, unsigned flags, void*& out);
  CUresult free(void* address);
  /// Memory that goes with its context.
  void forget(std::uintptr_t address);
  /// The session is over (session_belongings.h).
  void forget();
  CUresult add(void* address, std::size_t size, unsigned flags);
  CUresult remove(void* address);
  [[nodiscard]] std::optional<Region> find(const void* address);
  /// Whether the whole range lies in one region.
  [[nodiscard]] bool covers(const void* address, std::size_t size) {
    const auto region = find(address);
    return region && !region->coherent &&
           size <= region->size - (reinterpret_cast<std::uintptr_t>(address) - region->address);
  }

 private:
  Mutex mutex_;
  std::map<std::uintptr_t, Region> regions_ GUARDED_BY(mutex_);
};

HostMemory& host_memory();

}  // namespace gpupool::client
