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
  return (end - start) - covered;
}

double IntervalUnion::missing(double start, double end) const {
  if (!(end > start)) return 0;
  double covered = 0;
  for (const Piece& piece : pieces_)
    covered += std::max(0.0, std::min(end, piece.end) - std::max(start, piece.start));
  return (end - start) - covered;
}

double IntervalUnion::join(double busy_since) {
  if (pieces_.empty()) return 0;
  double longer = 0;
  for (std::size_t n = 1; n < pieces_.size(); ++n)
    longer += std::max(0.0, pieces_[n].start - std::max(pieces_[n - 1].end, busy_since));
  pieces_ = {{pieces_.front().start, pieces_.back().end}};
  return longer;
}

}  // namespace gpupool::worker
