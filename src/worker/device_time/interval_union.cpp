#include "worker/device_time/interval_union.h"

#include <algorithm>

namespace gpupool::worker {

double IntervalUnion::add(double start, double end) {
  if (!(end > start)) return 0;  // also false for NaN
  const auto first = std::lower_bound(pieces_.begin(), pieces_.end(), start,
                                      [](const Piece& piece, double value) { return piece.end < value; });
  double covered = 0;
  Piece merged{start, end};
  auto last = first;
  for (; last != pieces_.end() && last->start <= end; ++last) {
    covered += std::max(0.0, std::min(end, last->end) - std::max(start, last->start));
    merged.start = std::min(merged.start, last->start);
    merged.end = std::max(merged.end, last->end);
  }
  const auto place = pieces_.erase(first, last);
  pieces_.insert(place, merged);
  if (pieces_.size() > max_pieces) {
    pieces_[1].start = pieces_[0].start;
    pieces_.erase(pieces_.begin());
  }
  return (end - start) - covered;
}

double IntervalUnion::missing(double start, double end) const {
  if (!(end > start)) return 0;
  double covered = 0;
  for (const Piece& piece : pieces_)
    covered += std::max(0.0, std::min(end, piece.end) - std::max(start, piece.start));
  return (end - start) - covered;
}

}  // namespace gpupool::worker
