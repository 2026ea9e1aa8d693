// The length of a union of time intervals, fed one interval at a time in any order.
#pragma once

#include <vector>

namespace gpupool::worker {

/// Times are in any unit with any origin. Memory is bounded: beyond `max_pieces` disjoint pieces the two
/// earliest are joined, which can only charge less, never twice.
class IntervalUnion {
 public:
  static constexpr unsigned max_pieces = 64;

  /// Adds [start, end] and returns how much longer the union became; an empty or reversed interval adds
  /// nothing.
  double add(double start, double end);
  /// What add() would return; nothing changes.
  [[nodiscard]] double missing(double start, double end) const;

 private:
  struct Piece {
    double start, end;
  };
  std::vector<Piece> pieces_;  // sorted, disjoint
};

}  // namespace gpupool::worker
