// What cuMemAdvise and prefetching said of the parts of an allocation: hints, remembered for who asks. Pure.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <set>

namespace gpupool::client {

/// A place as the older functions name it: an ordinal, CU_DEVICE_CPU, or CU_DEVICE_INVALID for none.
struct Place {
  CUmemLocationType type = CU_MEM_LOCATION_TYPE_INVALID;
  int id = 0;
  bool operator==(const Place&) const = default;
};

struct Advice {
  bool read_mostly = false;
  Place preferred;
  Place prefetched;
  std::set<int> accessed_by;  ///< device ordinals and CU_DEVICE_CPU
  bool operator==(const Advice&) const = default;
};

class RangeAdvice {
 public:
  RangeAdvice() { parts_.emplace(0, Advice{}); }

  template <class F>
  void change(std::uint64_t begin, std::uint64_t end, F change) {
    split(begin);
    split(end);
    for (auto part = parts_.find(begin); part != parts_.end() && part->first < end; ++part)
      change(part->second);
  }

  /// What holds for all of the range; the default where its parts differ.
  [[nodiscard]] Advice combined(std::uint64_t begin, std::uint64_t end) const {
    auto part = std::prev(parts_.upper_bound(begin));
    Advice all = part->second;
    for (++part; part != parts_.end() && part->first < end; ++part) {
      const Advice& other = part->second;
      if (other.read_mostly != all.read_mostly) all.read_mostly = false;
      if (other.preferred != all.preferred) all.preferred = {};
      if (other.prefetched != all.prefetched) all.prefetched = {};
      std::erase_if(all.accessed_by, [&](int device) { return !other.accessed_by.contains(device); });
    }
    return all;
  }

 private:
  void split(std::uint64_t at) {
    const auto part = std::prev(parts_.upper_bound(at));
    if (part->first != at) parts_.emplace(at, part->second);
  }

  std::map<std::uint64_t, Advice> parts_;  ///< offset -> advice, up to the next part
};

}  // namespace gpupool::client
