// Random and quasi-random numbers of cuRAND. Computed by both ends: a generator of cuRAND may fill host
// memory too.
#pragma once

#include <cstdint>

namespace gpupool::operations {

enum class RandomGenerator : std::uint8_t {
  philox = 0,
  xorwow = 1,
  mrg32k3a = 2,
  mrg32k3a_legacy = 3,  // the same in cuRAND's order of old, of fewer subsequences
  sobol32 = 4,          // quasi-random, of one dimension
  sobol64 = 5,
};
/// In either order.
constexpr bool is_mrg32k3a(RandomGenerator generator) {
  return generator == RandomGenerator::mrg32k3a || generator == RandomGenerator::mrg32k3a_legacy;
}

constexpr bool is_sobol(RandomGenerator generator) {
  return generator == RandomGenerator::sobol32 || generator == RandomGenerator::sobol64;
}

enum class Distribution : std::uint8_t { bits = 0, uniform = 1, normal = 2, log_normal = 3 };

struct Random {
  static constexpr const char* name = "curand_generate";

  std::uint64_t output = 0;
  std::uint64_t count = 0;
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  // of the first number, as `random_course.h` counts
  double mean = 0, deviation = 1;
  Distribution distribution = Distribution::bits;
  std::uint8_t doubles = 0;  // not 0: in place of floats; of bits, words of 64
  RandomGenerator generator = RandomGenerator::philox;
  std::uint8_t begun_rows = 0;
  std::uint8_t reserved[4] = {};

  /// Normal numbers are made two at a time, but not quasi-random ones.
  [[nodiscard]] bool pairs() const { return distribution >= Distribution::normal && !is_sobol(generator); }
  [[nodiscard]] std::size_t bytes_of_number() const { return doubles != 0 ? 8 : 4; }
  /// For each part the states of all subsequences have to be found: 4096, or 81920 of MRG32k3a. Philox has
  /// no states, nor have quasi-random numbers.
  [[nodiscard]] std::uint64_t numbers_of_a_part() const {
    if (generator == RandomGenerator::philox || is_sobol(generator)) return 1 << 16;
    return generator == RandomGenerator::mrg32k3a ? 1 << 20 : 1 << 19;
  }
  [[nodiscard]] std::uint64_t parts() const {
    const std::uint64_t whole = numbers_of_a_part();
    return count / whole + (count % whole != 0 || count == 0 ? 1 : 0);
  }
};

}  // namespace gpupool::operations
