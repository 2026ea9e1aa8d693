#include "softgpu/driver/backing/allocation_table.h"

#include <mutex>

namespace softgpu::driver {
namespace {

constexpr std::size_t remembered_frees = 1024;

// The last range a thread found. Kernels touch the same array many times in a row.
struct LastHit {
  const AllocationTable* table = nullptr;
  std::uint64_t generation = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
thread_local LastHit last_hit;

}  // namespace

const Allocation* AllocationTable::lookup(std::uint64_t address) const {
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return nullptr;
  const Allocation& found = std::prev(next)->second;
  return found.holds(address) ? &found : nullptr;
}

AllocationTable& AllocationTable::of_process() {
  static auto* const made = new AllocationTable;  // streams' threads may still run while the process ends
  return *made;
}

bool AllocationTable::add(Allocation allocation) {
  const std::unique_lock lock(mutex_);
  auto next = ranges_.lower_bound(allocation.base);
  if (next != ranges_.end() && next->first < allocation.end()) return false;
  if (next != ranges_.begin() && std::prev(next)->second.end() > allocation.base) return false;
  allocation.buffer_id = next_id_++;
  ranges_.emplace_hint(next, allocation.base, allocation);
  generation_.fetch_add(1, std::memory_order_release);
  return true;
}

std::optional<Allocation> AllocationTable::remove(std::uint64_t base) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end()) return std::nullopt;
  const Allocation allocation = found->second;
  ranges_.erase(found);
  freed_.push_back(allocation);
  if (freed_.size() > remembered_frees) freed_.pop_front();
  generation_.fetch_add(1, std::memory_order_release);
  return allocation;
}

std::optional<Allocation> AllocationTable::find(std::uint64_t address) const {
  const std::shared_lock lock(mutex_);
  const Allocation* found = lookup(address);
  return found ? std::optional(*found) : std::nullopt;
}

bool AllocationTable::covers(std::uint64_t address, std::size_t size) const {
  const LastHit& hit = last_hit;
  if (hit.table == this && hit.generation == generation_.load(std::memory_order_acquire) &&
      address >= hit.begin && address < hit.end && size <= hit.end - address) {
    return true;
  }
  return covers_slowly(address, size);
}

bool AllocationTable::covers_slowly(std::uint64_t address, std::size_t size) const {
  const std::shared_lock lock(mutex_);
  const std::uint64_t generation = generation_.load(std::memory_order_acquire);
  const Allocation* found = lookup(address);
  if (!found || !found->accessible) return false;
  last_hit = {this, generation, found->base, found->end()};
  // Neighbouring mappings of one reservation are one array to the program.
  while (size > found->end() - address) {
    size -= found->end() - address;
    address = found->end();
    found = lookup(address);
    if (!found || !found->accessible) return false;
  }
  return true;
}

AllocationTable::Neighbours AllocationTable::neighbours(std::uint64_t address) const {
  const std::shared_lock lock(mutex_);
  Neighbours near;
  const auto after = ranges_.upper_bound(address);
  if (after != ranges_.end()) near.after = after->second;
  if (after != ranges_.begin()) {
    const Allocation& before = std::prev(after)->second;
    if (before.holds(address)) {
      near.holds = before;
    } else {
      near.before = before;
    }
  }
  for (auto freed = freed_.rbegin(); freed != freed_.rend() && !near.freed; ++freed) {
    if (freed->holds(address)) near.freed = *freed;
  }
  return near;
}

bool AllocationTable::set_access(std::uint64_t base, bool accessible, bool writable) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end()) return false;
  found->second.accessible = accessible;
  found->second.writable = writable;
  generation_.fetch_add(1, std::memory_order_release);
  return true;
}

bool AllocationTable::set_synchronous(std::uint64_t base, bool synchronous) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end()) return false;
  found->second.synchronous = synchronous;
  return true;
}

std::vector<Allocation> AllocationTable::owned_by(const Context* context) const {
  const std::shared_lock lock(mutex_);
  std::vector<Allocation> found;
  for (const auto& [base, allocation] : ranges_) {
    if (allocation.context == context) found.push_back(allocation);
  }
  return found;
}

std::vector<Allocation> AllocationTable::within(std::uint64_t base, std::size_t size) const {
  const std::shared_lock lock(mutex_);
  std::vector<Allocation> found;
  for (auto entry = ranges_.lower_bound(base); entry != ranges_.end() && entry->first - base < size;
       ++entry) {
    found.push_back(entry->second);
  }
  return found;
}

}  // namespace softgpu::driver
