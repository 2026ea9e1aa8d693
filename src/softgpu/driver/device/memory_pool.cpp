#include "softgpu/driver/device/memory_pool.h"

#include <algorithm>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/device/device.h"

namespace softgpu::driver {
namespace {

// `most`: the pool's size; 0: as much as there is.
cuuint64_t in_steps(cuuint64_t used, cuuint64_t most) {
  constexpr cuuint64_t step = 32 << 20;
  const cuuint64_t reserved = (used + step - 1) / step * step;
  return most == 0 ? reserved : std::min(reserved, std::max(most, used));
}

}  // namespace

void MemoryPool::require_room(std::size_t size) const {
  require(max_size_ == 0 || (size <= max_size_ && used_ <= max_size_ - size), CUDA_ERROR_OUT_OF_MEMORY);
}

void MemoryPool::remember(std::size_t size) {
  const std::size_t used = used_ += size;
  std::size_t high = used_high_.load();
  while (high < used && !used_high_.compare_exchange_weak(high, used)) {
  }
}

void MemoryPool::get_attribute(CUmemPool_attribute attribute, void* value) const {
  require(value != nullptr);
  switch (static_cast<int>(attribute)) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = reuse_[attribute - 1];
      return;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *static_cast<cuuint64_t*>(value) = release_threshold_;
      return;
    // As if memory was taken from the device in CUDA's steps.
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = in_steps(used_, max_size_);
      return;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = used_;
      return;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = in_steps(used_high_, max_size_);
      return;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = used_high_;
      return;
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
      *static_cast<CUmemAllocationType*>(value) = CU_MEM_ALLOCATION_TYPE_PINNED;
      return;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
      *static_cast<int*>(value) = CU_MEM_HANDLE_TYPE_NONE;
      return;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
      *static_cast<int*>(value) = device_.ordinal();
      return;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
      *static_cast<CUmemLocationType*>(value) = CU_MEM_LOCATION_TYPE_DEVICE;
      return;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
      *static_cast<cuuint64_t*>(value) = max_size_;
      return;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
      *static_cast<int*>(value) = 0;
      return;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void MemoryPool::set_attribute(CUmemPool_attribute attribute, const void* value) {
  require(value != nullptr);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[attribute - 1] = *static_cast<const int*>(value);
      return;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold_ = *static_cast<const cuuint64_t*>(value);
      return;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      require(*static_cast<const cuuint64_t*>(value) == 0);  // the high mark can only be reset
      used_high_ = used_.load();
      return;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

}  // namespace softgpu::driver
