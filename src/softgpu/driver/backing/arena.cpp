#include "softgpu/driver/backing/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"

namespace softgpu::driver {
namespace {

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Arena::Arena(std::size_t span) : span_(round_up(span, chunk_bytes)) {
  // One chunk more than needed, so that the start can be aligned.
  void* place =
      mmap(nullptr, span_ + chunk_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) fail(CUDA_ERROR_OUT_OF_MEMORY);
  const auto start = reinterpret_cast<std::uint64_t>(place);
  base_ = round_up(start, chunk_bytes);
  if (base_ > start) munmap(place, base_ - start);
  const std::uint64_t tail = start + span_ + chunk_bytes - (base_ + span_);
  if (tail) munmap(reinterpret_cast<void*>(base_ + span_), tail);
  gaps_.emplace(0, span_);
  users_.resize(span_ / chunk_bytes);
}

Arena::~Arena() {
  munmap(reinterpret_cast<void*>(base_), span_);
}

Arena::Gaps::node_type Arena::make_gap() {
  Gaps made;
  made.emplace(0, 0);
  return made.extract(made.begin());
}

void Arena::put_gap(std::size_t offset, std::size_t size, Gaps::node_type node) noexcept {
  node.key() = offset;
  node.mapped() = size;
  gaps_.insert(std::move(node));
}

// `spare`: for what is left in front, where something is left behind, too.
std::optional<std::size_t> Arena::take_gap(std::size_t size, std::size_t alignment,
                                           Gaps::node_type spare) noexcept {
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto [offset, room] = *gap;
    const std::size_t start = round_up(offset, alignment);
    if (start - offset > room || room - (start - offset) < size) continue;
    const std::size_t rest = offset + room - (start + size);
    auto node = gaps_.extract(gap);
    if (start > offset) put_gap(offset, start - offset, std::move(spare));
    if (rest) put_gap(start + size, rest, std::move(node));
    return start;
  }
  return std::nullopt;
}

void Arena::give_gap(std::size_t offset, std::size_t size, Gaps::node_type node) noexcept {
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && next->first == offset + size) {
    size += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  put_gap(offset, size, std::move(node));
}

bool Arena::commit(std::size_t offset, std::size_t size) {
  const std::size_t last = (offset + size - 1) / chunk_bytes;
  for (std::size_t chunk = offset / chunk_bytes; chunk <= last;) {
    if (users_[chunk]) {
      ++users_[chunk++];
      continue;
    }
    std::size_t stop = chunk;
    while (stop <= last && !users_[stop]) users_[stop++] = 1;
    if (mprotect(reinterpret_cast<void*>(base_ + chunk * chunk_bytes), (stop - chunk) * chunk_bytes,
                 PROT_READ | PROT_WRITE) != 0) {
      // Undo this allocation's marks: everything before `stop` has been counted once.
      decommit(offset, std::min(size, stop * chunk_bytes - offset));
      return false;
    }
    chunk = stop;
  }
  return true;
}

void Arena::decommit(std::size_t offset, std::size_t size) {
  const std::size_t last = (offset + size - 1) / chunk_bytes;
  for (std::size_t chunk = offset / chunk_bytes; chunk <= last;) {
    if (--users_[chunk]) {
      ++chunk;
      continue;
    }
    std::size_t stop = chunk + 1;
    while (stop <= last && users_[stop] == 1) users_[stop++] = 0;
    void* place = reinterpret_cast<void*>(base_ + chunk * chunk_bytes);
    // A fresh mapping drops the pages and the access in one step.
    mmap(place, (stop - chunk) * chunk_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    chunk = stop;
  }
}

std::uint64_t Arena::allocate(std::size_t size, std::size_t alignment) {
  if (size == 0 || size > span_ || !std::has_single_bit(alignment) || alignment > span_) return 0;
  alignment = std::max(alignment, allocation_alignment);
  const bool large = size >= chunk_bytes / 2;
  const std::size_t wanted = round_up(size, allocation_alignment);
  // Made before anything changes: what throws for want of memory has changed nothing.
  std::map<std::size_t, Block> made;
  Block& block = made[0];
  block.gap = make_gap();
  auto spare = make_gap();
  block.size = round_up(size, large ? chunk_bytes : allocation_alignment);  // large blocks share no chunk
  block.taken = block.size + (large ? chunk_bytes : 0);  // the last chunk stays without memory
  const bool at_end = large && alignment == allocation_alignment;
  const gpupool::MutexLock lock(mutex_);
  const auto gap =
      take_gap(block.taken, large ? std::max(alignment, chunk_bytes) : alignment, std::move(spare));
  if (!gap) return 0;
  block.offset = *gap;
  if (!commit(block.offset, block.size)) {
    give_gap(block.offset, block.taken, std::move(block.gap));
    return 0;
  }
  const std::size_t given = block.offset + (at_end ? block.size - wanted : 0);
  auto node = made.extract(made.begin());
  node.key() = given;
  blocks_.insert(std::move(node));
  return base_ + given;
}

std::size_t Arena::free(std::uint64_t address) {
  const gpupool::MutexLock lock(mutex_);
  if (address < base_ || address >= end()) return 0;
  const auto found = blocks_.find(address - base_);
  if (found == blocks_.end()) return 0;
  Block block = std::move(found->second);
  blocks_.erase(found);
  decommit(block.offset, block.size);
  give_gap(block.offset, block.taken, std::move(block.gap));
  return block.size;
}

std::size_t Arena::committed() {
  const gpupool::MutexLock lock(mutex_);
  return chunk_bytes * static_cast<std::size_t>(std::count_if(
                           users_.begin(), users_.end(), [](std::uint32_t users) { return users != 0; }));
}

void Arena::park(HostStore& store) {
  const gpupool::MutexLock lock(mutex_);
  for (std::size_t chunk = 0; chunk < users_.size(); ++chunk) {
    if (users_[chunk]) store.take(base_ + chunk * chunk_bytes, chunk_bytes);
  }
}

}  // namespace softgpu::driver
