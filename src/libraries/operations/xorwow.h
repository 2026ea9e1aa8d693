// XORWOW (Marsaglia, "Xorshift RNGs"), cuRAND's default generator. Seeds, and the order of results: as in
// cuRAND's headers (`curand_init`) and by its host generators, which were compared bit for bit.
//
// 4096 subsequences that are 2^67 words apart take turns (`random_course.h`).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "libraries/operations/random_course.h"
#include "libraries/operations/random_values.h"

namespace gpupool::operations::xorwow {

inline constexpr std::uint64_t subsequences = xorwow_subsequences;

/// 160 bits in which a step is linear over GF(2), beside a counter.
using Bits = std::array<std::uint32_t, 5>;
inline constexpr unsigned bit_count = 160;
inline constexpr std::uint32_t counter_step = 362437;

inline void step(Bits& v) {
  const std::uint32_t t = v[0] ^ (v[0] >> 2);
  v = {v[1], v[2], v[3], v[4], v[4] ^ (v[4] << 4) ^ t ^ (t << 1)};
}

/// A linear map: where it takes each single bit.
struct Map {
  std::array<Bits, bit_count> columns;

  [[nodiscard]] Bits operator()(const Bits& v) const {
    Bits sum{};
    for (unsigned word = 0; word < 5; ++word) {
      for (std::uint32_t left = v[word]; left != 0; left &= left - 1) {
        const Bits& column = columns[word * 32 + static_cast<unsigned>(std::countr_zero(left))];
        for (unsigned i = 0; i < 5; ++i) sum[i] ^= column[i];
      }
    }
    return sum;
  }
  /// Done twice.
  [[nodiscard]] Map squared() const {
    Map twice;
    for (unsigned i = 0; i < bit_count; ++i) twice.columns[i] = (*this)(columns[i]);
    return twice;
  }
};

/// 2^n steps, for each n up to 67 and the bits of a subsequence.
class Jumps {
 public:
  static const Jumps& all() {
    static const Jumps made;
    return made;
  }
  void steps(Bits& v, std::uint64_t count) const { jump(v, count, 0); }
  void to_subsequence(Bits& v, std::uint64_t number) const { jump(v, number, subsequence_exponent); }
  [[nodiscard]] const Map& next_subsequence() const { return maps_[subsequence_exponent]; }

 private:
  static constexpr unsigned subsequence_exponent = 67;

  Jumps() : maps_(subsequence_exponent + std::bit_width(subsequences - 1)) {
    for (unsigned i = 0; i < bit_count; ++i) {
      Bits one{};
      one[i / 32] = 1U << i % 32;
      step(one);
      maps_[0].columns[i] = one;
    }
    for (std::size_t n = 1; n < maps_.size(); ++n) maps_[n] = maps_[n - 1].squared();
  }
  void jump(Bits& v, std::uint64_t count, unsigned exponent) const {
    for (; count != 0; count >>= 1, ++exponent)
      if ((count & 1) != 0) v = maps_[exponent](v);
  }

  std::vector<Map> maps_;
};

/// Where a subsequence is.
struct State {
  Bits bits;
  std::uint32_t counter;

  std::uint32_t next() {
    step(bits);
    counter += counter_step;
    return bits[4] + counter;
  }
  template <class T>
  T uniform() {
    const std::uint32_t low = next();
    if constexpr (sizeof(T) == 4) {
      return random_values::uniform(low);
    } else {
      return random_values::uniform(low, next());
    }
  }
};

/// Of subsequence 0, at its first word.
inline State seeded(std::uint64_t seed) {
  const std::uint32_t low = 1099087573U * (static_cast<std::uint32_t>(seed) ^ 0xAAD26B49U);
  const std::uint32_t high = 2591861531U * (static_cast<std::uint32_t>(seed >> 32) ^ 0xF7DCEFDDU);
  return {{123456789U + low, 362436069U ^ low, 521288629U + high, 88675123U ^ high, 5783321U + low},
          6615241U + high + low};
}

/// As `random_turns.h` wants them.
struct Subsequences {
  static State find(std::uint64_t seed, std::uint64_t number, std::uint64_t row) {
    const Jumps& jumps = Jumps::all();
    State state = seeded(seed);
    jumps.to_subsequence(state.bits, number);
    jumps.steps(state.bits, row);
    state.counter += static_cast<std::uint32_t>(row) * counter_step;
    return state;
  }
  /// By 2^67 steps: the counter is the same again.
  static void to_next(State& state) { state.bits = Jumps::all().next_subsequence()(state.bits); }
};

}  // namespace gpupool::operations::xorwow
