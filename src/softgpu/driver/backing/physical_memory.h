// The memory behind cuMemCreate: one unlinked file per device, from which handles take extents.
//
// A file, because CUDA allows one physical allocation to be mapped at several addresses at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/mutex.h"

namespace softgpu::driver {

class PhysicalMemory {
 public:
  PhysicalMemory() = default;
  ~PhysicalMemory();
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  // Offset of a fresh, zeroed extent. `size` is a multiple of the granularity. Throws Error(OUT_OF_MEMORY).
  std::size_t allocate(std::size_t size);
  void free(std::size_t offset, std::size_t size);
  // Maps an extent over reserved address space, without access. Throws Error(MAP_FAILED).
  void map(std::uint64_t address, std::size_t size, std::size_t offset);

 private:
  int file() REQUIRES(mutex_);

  gpupool::Mutex mutex_;
  int file_ GUARDED_BY(mutex_) = -1;
  std::size_t end_ GUARDED_BY(mutex_) = 0;                       // length of the file
  std::map<std::size_t, std::size_t> holes_ GUARDED_BY(mutex_);  // offset -> size, below end_
};

}  // namespace softgpu::driver
