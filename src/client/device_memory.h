// Device memory of the session: one allocator per device, and the posts that back its chunks with memory.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/arena_allocator.h"
#include "wire/hello.h"

namespace gpupool::client {

class DeviceMemory {
 public:
  /// Reserves the arenas' ranges in this process too, so that no host pointer ever looks like a device
  /// pointer. False and `error` when a range is taken.
  bool open(const std::vector<wire::ArenaDescription>& arenas, std::string& error);

  void set_limits(const std::vector<std::uint64_t>& limits);

  /// `context` is the one that the memory goes with, 0 for memory of a pool.
  CUresult allocate(int device, std::uint64_t size, std::uint64_t stream, std::uint64_t context,
                    CUdeviceptr& out);
  CUresult free(CUdeviceptr address, std::uint64_t stream);

  struct Found {
    int device;
    ArenaAllocator::Block block;
  };
  [[nodiscard]] std::optional<Found> find(CUdeviceptr address);
  /// Whether the address lies in an arena, allocated or not.
  [[nodiscard]] bool owns(std::uint64_t address) const;
  /// Free and total bytes of the share.
  CUresult info(int device, std::uint64_t& free, std::uint64_t& total);
  CUresult trim(int device);
  /// Frees what was allocated for `context` and, on demand, what belongs to the device's pools.
  CUresult free_context(int device, std::uint64_t context, bool pools);

  /// Something was given to the device.
  void work() { work_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t work_mark() const { return work_.load(std::memory_order_relaxed); }
  /// Everything up to the mark is finished on the device.
  void settled(int device, std::uint64_t mark);

 private:
  struct Arena {
    std::mutex mutex;
    ArenaAllocator allocator;
  };
  [[nodiscard]] Arena* arena(int device);

  std::vector<std::unique_ptr<Arena>> arenas_;  // constant after open
  std::vector<wire::ArenaDescription> ranges_;
  std::atomic<std::uint64_t> work_{1};
};

}  // namespace gpupool::client
