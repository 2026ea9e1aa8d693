// Sums in an order that is always the same, and that the processor can add several numbers of at once.
#pragma once

#include <cstdint>

namespace softgpu::libraries {

/// f of each of `count` numbers, added up.
template <class N, class F>
double sum_of(const N* values, std::int64_t count, F f) {
  constexpr int lanes = 8;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += f(static_cast<double>(values[i + lane]));
  }
  double all = 0;
  for (const double sum : sums) all += sum;
  for (; i < count; ++i) all += f(static_cast<double>(values[i]));
  return all;
}

}  // namespace softgpu::libraries
