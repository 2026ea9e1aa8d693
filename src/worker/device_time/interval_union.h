// The length of a union of time intervals, fed one interval at a time in any order.
#pragma once

#include <vector>

namespace gpupool::worker {

/// Times are in any unit with any origin. Who adds must join() when there are many pieces: memory is bounded
/// by that alone.
class IntervalUnion {
 public:
  static constexpr unsigned max_pieces = 64;

  /// Adds [start, end] and returns how much longer the union became; an empty or reversed interval adds
  /// nothing.
  double add(double start, double end);
  /// What add() would return; nothing changes.
  [[nodiscard]] double missing(double start, double end) const;
  [[nodiscard]] bool many() const { return pieces_.size() > max_pieces; }
  /// Makes one piece of all of them and returns how much longer the union became: by what lies between pieces
  /// since `busy_since`. What lies between them before that adds nothing, now or later.
  double join(double busy_since);

 private:
  struct Piece {
    double start, end;
  };
  std::vector<Piece> pieces_;  // sorted, disjoint
};

}  // namespace gpupool::worker
