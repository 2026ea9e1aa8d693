// Host memory in which asynchronous copies wait to be sent.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

#include "wire/windows.h"
#include "worker/driver/driver.h"

namespace gpupool::worker {

/// As many slots as a client may have copies under way. Pinned where the driver allows it. Thread-safe.
class CopySlots {
 public:
  /// `home` owns the memory: a context that lives as long as this.
  CopySlots(const DriverApi& api, CUcontext home) : api_(api), home_(home) {}
  ~CopySlots();
  CopySlots(const CopySlots&) = delete;
  CopySlots& operator=(const CopySlots&) = delete;

  /// Null when all slots of that size are taken. `current` is current again afterwards.
  std::byte* take(std::size_t size, CUcontext current);
  void give(std::byte* slot, std::size_t size);

 private:
  struct Block {
    std::byte* memory;
    bool pinned;
  };
  std::byte* allocate(CUcontext current);

  const DriverApi& api_;
  CUcontext home_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::vector<std::byte*> small_, large_;  // free
  std::size_t large_made_ = 0;
  bool small_made_ = false;
};

}  // namespace gpupool::worker
