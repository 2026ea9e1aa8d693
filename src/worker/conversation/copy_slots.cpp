#include "worker/conversation/copy_slots.h"

#include <cstdlib>

namespace gpupool::worker {

CopySlots::~CopySlots() {
  for (const Block& block : blocks_) {
    if (block.pinned) {
      api_.cuMemFreeHost_(block.memory);
    } else {
      std::free(block.memory);
    }
  }
}

std::byte* CopySlots::allocate(CUcontext current) {
  void* memory = nullptr;
  api_.cuCtxSetCurrent_(home_);
  const bool pinned = api_.cuMemAllocHost_v2_(&memory, wire::largest_piece) == CUDA_SUCCESS;
  api_.cuCtxSetCurrent_(current);
  if (!pinned) memory = std::malloc(wire::largest_piece);
  if (memory != nullptr) blocks_.push_back({static_cast<std::byte*>(memory), pinned});
  return static_cast<std::byte*>(memory);
}

std::byte* CopySlots::take(std::size_t size, CUcontext current) {
  const std::lock_guard lock(mutex_);
  auto& free = size <= wire::small_piece ? small_ : large_;
  if (free.empty() && size <= wire::small_piece && !small_made_) {
    std::byte* const block = allocate(current);
    for (std::size_t n = 0; block != nullptr && n < wire::small_pieces; ++n) {
      small_.push_back(block + n * wire::small_piece);
    }
    small_made_ = block != nullptr;
  } else if (free.empty() && size > wire::small_piece && large_made_ < wire::large_pieces) {
    if (std::byte* const block = allocate(current); block != nullptr) {
      large_.push_back(block);
      ++large_made_;
    }
  }
  if (free.empty()) return nullptr;
  std::byte* const slot = free.back();
  free.pop_back();
  return slot;
}

void CopySlots::give(std::byte* slot, std::size_t size) {
  const std::lock_guard lock(mutex_);
  (size <= wire::small_piece ? small_ : large_).push_back(slot);
}

}  // namespace gpupool::worker
