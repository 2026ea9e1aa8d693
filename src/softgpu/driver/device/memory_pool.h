// Memory pools: the accounts behind stream-ordered allocation.
//
// Memory is taken from the device when the call is made and given back when the stream reaches the free, so a
// pool caches nothing; it counts what is in use and holds its attributes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Device;

class MemoryPool {
 public:
  MemoryPool(Device& device, bool is_default, std::size_t max_size = 0)
      : device_(device), is_default_(is_default), max_size_(max_size) {}

  Device& device() const { return device_; }
  bool is_default() const { return is_default_; }

  // Throws Error(OUT_OF_MEMORY) for more than the pool may hold.
  void require_room(std::size_t size) const;
  // Accounts for memory that comes into the pool and leaves it.
  void remember(std::size_t size);
  void forget(const Allocation& allocation) { used_ -= allocation.size; }

  // Throw Error(INVALID_VALUE) for an attribute that does not exist or cannot be set.
  void get_attribute(CUmemPool_attribute attribute, void* value) const;
  void set_attribute(CUmemPool_attribute attribute, const void* value);

 private:
  Device& device_;
  const bool is_default_;
  const std::size_t max_size_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> used_high_{0};
  std::atomic<cuuint64_t> release_threshold_{0};
  std::atomic<int> reuse_[3] = {1, 1, 1};
};

}  // namespace softgpu::driver
