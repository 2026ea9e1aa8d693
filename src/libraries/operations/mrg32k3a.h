// MRG32k3a (L'Ecuyer, "Good parameters and implementations for combined multiple recursive random number
// generators"). Seeds, and what becomes of its numbers: as in cuRAND's headers (`curand_init`) and by its
// host generators, which were compared.
//
// Subsequences that are 2^76 words apart take turns (`random_course.h`).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "libraries/operations/random_course.h"

namespace gpupool::operations::mrg32k3a {

/// The last three numbers of a recurrence, the oldest first.
using Numbers = std::array<std::uint64_t, 3>;

/// Both recurrences: the next number is `factor` times the one at `place`, less `less` times the oldest.
struct First {
  static constexpr std::uint64_t modulus = 4294967087, factor = 1403580, less = 810728;
  static constexpr std::size_t place = 1;
};
struct Second {
  static constexpr std::uint64_t modulus = 4294944443, factor = 527612, less = 1370589;
  static constexpr std::size_t place = 2;
};

template <class Recurrence>
void step(Numbers& v) {
  // So that nothing is below 0, what the oldest lacks to the modulus is added in place of taking it away.
  const std::uint64_t lacking = Recurrence::less * (Recurrence::modulus - v[0]);
  const std::uint64_t next = (Recurrence::factor * v[Recurrence::place] + lacking) % Recurrence::modulus;
  v = {v[1], v[2], next};
}

/// Many steps, which are a linear map: where it takes a 1 at each place.
template <class Recurrence>
struct Map {
  std::array<Numbers, 3> columns;

  [[nodiscard]] Numbers operator()(const Numbers& v) const {
    Numbers sum{};
    for (std::size_t column = 0; column < 3; ++column)
      for (std::size_t row = 0; row < 3; ++row)
        sum[row] = (sum[row] + columns[column][row] * v[column]) % Recurrence::modulus;
    return sum;
  }
  /// Done twice.
  [[nodiscard]] Map squared() const {
    Map twice{};
    for (std::size_t i = 0; i < 3; ++i) twice.columns[i] = (*this)(columns[i]);
    return twice;
  }
};

/// 2^n steps, for each n up to 76 and the bits of a subsequence.
template <class Recurrence>
class Jumps {
 public:
  static const Jumps& all() {
    static const Jumps made;
    return made;
  }
  /// To a row of a subsequence, from the first of subsequence 0.
  [[nodiscard]] Numbers to(std::uint64_t subsequence, std::uint64_t row, const Numbers& v) const {
    return jump(jump(v, subsequence, subsequence_exponent), row, 0);
  }
  [[nodiscard]] const Map<Recurrence>& next_subsequence() const { return maps_[subsequence_exponent]; }

 private:
  static constexpr unsigned subsequence_exponent = 76;

  Jumps() : maps_(subsequence_exponent + std::bit_width(mrg32k3a_subsequences - 1)) {
    for (std::size_t i = 0; i < 3; ++i) {
      Numbers one{};
      one[i] = 1;
      step<Recurrence>(one);
      maps_[0].columns[i] = one;
    }
    for (std::size_t n = 1; n < maps_.size(); ++n) maps_[n] = maps_[n - 1].squared();
  }
  [[nodiscard]] Numbers jump(Numbers v, std::uint64_t count, unsigned exponent) const {
    for (; count != 0; count >>= 1, ++exponent)
      if ((count & 1) != 0) v = maps_[exponent](v);
    return v;
  }

  std::vector<Map<Recurrence>> maps_;
};

/// Where a subsequence is.
struct State {
  Numbers first, second;

  /// From 1 up to the first modulus.
  std::uint64_t number() {
    step<First>(first);
    step<Second>(second);
    return first[2] > second[2] ? first[2] - second[2] : first[2] + First::modulus - second[2];
  }
  /// Numbers stretched over 32 bits: the factor is cuRAND's. The largest would be 2^32, and is 0 as on the
  /// host there.
  std::uint32_t next() {
    constexpr double stretched = 1.000000048662;
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(static_cast<double>(number()) * stretched));
  }
  /// In (0, 1], a double too.
  template <class T>
  T uniform() {
    constexpr double largest = First::modulus;
    return static_cast<T>(static_cast<double>(number()) * (1 / largest));
  }
};

/// Of subsequence 0, at its first word.
inline State seeded(std::uint64_t seed) {
  constexpr std::uint64_t start = 12345, first = First::modulus, second = Second::modulus;
  if (seed == 0) return {{start, start, start}, {start, start, start}};
  const std::uint64_t low = ((seed & 0xFFFFFFFF) ^ 0x55555555) * start;
  const std::uint64_t high = ((seed >> 32) ^ 0xAAAAAAAA) * start;
  return {{low % first, high % first, low % first}, {high % second, low % second, high % second}};
}

/// As `random_turns.h` wants them.
struct Subsequences {
  static State find(std::uint64_t seed, std::uint64_t number, std::uint64_t row) {
    const State start = seeded(seed);
    return {Jumps<First>::all().to(number, row, start.first),
            Jumps<Second>::all().to(number, row, start.second)};
  }
  static void to_next(State& state) {
    state.first = Jumps<First>::all().next_subsequence()(state.first);
    state.second = Jumps<Second>::all().next_subsequence()(state.second);
  }
};

}  // namespace gpupool::operations::mrg32k3a
