// Medians of many repetitions: on a shared machine a mean measures the neighbours.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace gpupool::bench {

using Clock = std::chrono::steady_clock;

/// Collected times in microseconds.
class Samples {
 public:
  void add(Clock::duration elapsed, std::size_t operations = 1) {
    values_.push_back(std::chrono::duration<double, std::micro>(elapsed).count() /
                      static_cast<double>(operations));
  }
  [[nodiscard]] std::size_t count() const { return values_.size(); }
  [[nodiscard]] double median() const { return quantile(0.5); }
  /// The value below which `part` (0..1) of the samples lie; 0 without samples.
  [[nodiscard]] double quantile(double part) const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(sorted.size() - 1));
    std::nth_element(sorted.begin(), sorted.begin() + at, sorted.end());
    return sorted[static_cast<std::size_t>(at)];
  }

 private:
  std::vector<double> values_;
};

/// Runs `operation` `times` times and adds each one's time.
template <typename Operation>
void time_each(Samples& samples, std::size_t times, Operation operation) {
  for (std::size_t i = 0; i < times; ++i) {
    const auto start = Clock::now();
    operation();
    samples.add(Clock::now() - start);
  }
}

/// Runs `operation` `times` times and adds the mean time: for operations too short for one clock reading
/// each.
template <typename Operation>
void time_batch(Samples& samples, std::size_t times, Operation operation) {
  const auto start = Clock::now();
  for (std::size_t i = 0; i < times; ++i) operation();
  samples.add(Clock::now() - start, times);
}

}  // namespace gpupool::bench
