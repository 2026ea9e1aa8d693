// The logical endpoints of the session: ids that it reserved, endpoints that it made of them, and the memory
// that is bound to those.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

#include "worker/bound_memory.h"

namespace gpupool::worker {

/// Not thread-safe: the executing thread alone uses it.
class LogicalEndpoints {
 public:
  using Id = CUlogicalEndpointId;

  void reserve(Id first, std::uint32_t count) { reserved_[first] = count; }
  /// Exactly what one reserve gave.
  [[nodiscard]] bool is_reservation(Id first, std::uint32_t count) const {
    const auto found = reserved_.find(first);
    return found != reserved_.end() && found->second == count;
  }
  void release(Id first) { reserved_.erase(first); }
  /// Whether all ids of the range are the session's.
  [[nodiscard]] bool owns(Id first, std::uint32_t count = 1) const {
    auto next = reserved_.upper_bound(first);
    if (next == reserved_.begin() || count == 0) return false;
    --next;
    const std::uint32_t inside = first - next->first;
    return inside < next->second && count <= next->second - inside;
  }
  [[nodiscard]] std::size_t reservations() const { return reserved_.size(); }

  void add(Id id) { made_.try_emplace(id); }
  void remove(Id id) { made_.erase(id); }
  /// Null for an id that no endpoint was made of.
  [[nodiscard]] BoundMemory* bound_to(Id id) {
    const auto found = made_.find(id);
    return found == made_.end() ? nullptr : &found->second;
  }

  /// Ends everything, with `destroy(id)` and `release(first, count)`.
  template <class Destroy, class Release>
  void clear(Destroy destroy, Release release) {
    for (const auto& [id, bound] : made_) destroy(id);
    made_.clear();
    for (const auto& [first, count] : reserved_) release(first, count);
    reserved_.clear();
  }

 private:
  std::map<Id, std::uint32_t> reserved_;
  std::map<Id, BoundMemory> made_;
};

}  // namespace gpupool::worker
