// XORWOW (Marsaglia, "Xorshift RNGs"), cuRAND's default generator. Seeds, and the order of results: as in
// cuRAND's headers (`curand_init`) and by its host generators, which were compared bit for bit.
//
// 4096 subsequences that are 2^67 words apart take turns (`random_course.h`).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "libraries/operations/random.h"
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
};

/// Of subsequence 0, at its first word.
inline State seeded(std::uint64_t seed) {
  const std::uint32_t low = 1099087573U * (static_cast<std::uint32_t>(seed) ^ 0xAAD26B49U);
  const std::uint32_t high = 2591861531U * (static_cast<std::uint32_t>(seed >> 32) ^ 0xF7DCEFDDU);
  return {{123456789U + low, 362436069U ^ low, 521288629U + high, 88675123U ^ high, 5783321U + low},
          6615241U + high + low};
}

template <class T>
T uniform(State& state) {
  const std::uint32_t low = state.next();
  if constexpr (sizeof(T) == 4) return random_values::uniform(low);
  return random_values::uniform(low, state.next());
}

/// The next item of a subsequence.
template <class T>
void item(const Random& random, State& state, T* into) {
  if (random.distribution == Distribution::bits) {
    const std::uint32_t bits = state.next();
    std::memcpy(into, &bits, sizeof bits);
  } else if (!random.pairs()) {
    *into = uniform<T>(state);
  } else {
    const T first = uniform<T>(state), second = uniform<T>(state);
    random_values::normal(first, second, into);
    for (int i = 0; i < 2; ++i) into[i] = random_values::shaped(random, into[i]);
  }
}

/// The turns [first, end) of an operation.
template <class T>
class Range {
 public:
  Range(const Random& random, std::uint64_t first, std::uint64_t end, T* output)
      : random_(random), course_(random), first_(first), end_(end), output_(output) {}

  void write() const {
    if (first_ >= end_) return;
    const std::uint64_t from = first_ % subsequences, to = (end_ - 1) % subsequences + 1;
    if (end_ - first_ >= subsequences) {
      some(0, subsequences);
    } else if (from < to) {
      some(from, to);
    } else {
      some(from, subsequences);
      some(0, to);
    }
  }

 private:
  /// The subsequences [first, end): each is a jump away from the one before.
  void some(std::uint64_t first, std::uint64_t end) const {
    const Jumps& jumps = Jumps::all();
    const std::uint64_t cycle = first_ / subsequences, row = course_.row_in(cycle);
    State state = seeded(random_.seed);
    jumps.to_subsequence(state.bits, first);
    jumps.steps(state.bits, row);
    state.counter += static_cast<std::uint32_t>(row) * counter_step;
    for (std::uint64_t number = first; number < end; ++number) {
      one(number, state, cycle);
      state.bits = jumps.next_subsequence()(state.bits);  // 2^67 steps: the counter is the same again
    }
  }
  /// A subsequence from `cycle` on, where it is in `state`.
  void one(std::uint64_t number, State state, std::uint64_t cycle) const {
    std::uint64_t row = course_.row_in(cycle);
    for (std::uint64_t turn = cycle * subsequences + number; turn < end_; turn += subsequences, ++cycle) {
      for (; row < course_.row_in(cycle); ++row) state.next();
      if (turn < first_) continue;
      item(random_, state, output_ + (turn - course_.first_turn()) * course_.numbers_of_item());
      row += course_.rows_of_item();
    }
  }

  const Random& random_;
  RandomCourse course_;
  std::uint64_t first_, end_;
  T* output_;
};

/// The numbers [first, end) of an operation, both even where they come in pairs, to `output` + `first`.
template <class T>
void generate(const Random& random, std::uint64_t first, std::uint64_t end, T* output) {
  const RandomCourse course(random);
  const std::uint64_t numbers = course.numbers_of_item();
  Range<T>(random, course.first_turn() + first / numbers, course.first_turn() + end / numbers, output)
      .write();
}

}  // namespace gpupool::operations::xorwow
