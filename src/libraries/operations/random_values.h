// What words of a generator become: uniform and normal numbers, as cuRAND's own headers and host generators
// make them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "libraries/operations/random.h"

namespace gpupool::operations::random_values {

/// In (0, 1].
inline float uniform(std::uint32_t bits) {
  return static_cast<float>(bits) * 0x1p-32F + 0x1p-33F;
}
inline double uniform(std::uint32_t low, std::uint32_t high) {
  return static_cast<double>(low ^ (static_cast<std::uint64_t>(high) << 21)) * 0x1p-53 + 0x1p-54;
}

/// Box and Muller's two normal numbers of two uniform ones.
template <class T>
void normal(T first, T second, T* into) {
  const T distance = std::sqrt(T(-2) * std::log(first)), angle = second * T(2 * std::numbers::pi);
  into[0] = distance * std::sin(angle);
  into[1] = distance * std::cos(angle);
}

/// How far out a normal number is than which others are larger with this probability.
inline double normal_distance(double probability) {
  if (probability == 0.5) return 0;
  if (probability > 0.5) return -normal_distance(1 - probability);
  // Abramowitz and Stegun's approximation 26.2.23, then steps of Halley's method.
  const double t = std::sqrt(-2 * std::log(probability));
  double far =
      t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  for (int i = 0; i < 2; ++i) {
    const double density = std::exp(-far * far / 2) / std::sqrt(2 * std::numbers::pi);
    const double step = (std::erfc(far / std::numbers::sqrt2) / 2 - probability) / density;
    far += step / (1 - far * step / 2);
  }
  return far;
}

/// A number of the wanted distribution, of one that is uniform, or normal where that is wanted.
template <class T>
T shaped(const Random& random, T value) {
  if (random.distribution < Distribution::normal) return value;
  value = value * static_cast<T>(random.deviation) + static_cast<T>(random.mean);
  return random.distribution == Distribution::log_normal ? std::exp(value) : value;
}

}  // namespace gpupool::operations::random_values
