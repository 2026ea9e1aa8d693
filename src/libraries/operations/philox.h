// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3") in the
// order that NVIDIA documents: any number can be computed without those before it.
#pragma once

#include <cstdint>
#include <cstring>

#include "libraries/operations/random.h"
#include "libraries/operations/random_course.h"
#include "libraries/operations/random_values.h"

namespace gpupool::operations::philox {

using random_values::normal, random_values::shaped, random_values::uniform;

/// Four words of the counter become four random ones.
struct Block {
  std::uint32_t words[4];
};

inline Block block(std::uint64_t seed, std::uint64_t sequence, std::uint64_t step) {
  constexpr std::uint64_t multiplier_0 = 0xD2511F53, multiplier_1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl_0 = 0x9E3779B9, weyl_1 = 0xBB67AE85;
  auto key_0 = static_cast<std::uint32_t>(seed), key_1 = static_cast<std::uint32_t>(seed >> 32);
  auto a = static_cast<std::uint32_t>(step), b = static_cast<std::uint32_t>(step >> 32),
       c = static_cast<std::uint32_t>(sequence), d = static_cast<std::uint32_t>(sequence >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product_0 = multiplier_0 * a, product_1 = multiplier_1 * c;
    a = static_cast<std::uint32_t>(product_1 >> 32) ^ b ^ key_0;
    b = static_cast<std::uint32_t>(product_1);
    c = static_cast<std::uint32_t>(product_0 >> 32) ^ d ^ key_1;
    d = static_cast<std::uint32_t>(product_0);
    key_0 += weyl_0;
    key_1 += weyl_1;
  }
  return {{a, b, c, d}};
}

/// There are so many sequences; four numbers of one are followed by four of the next.
inline constexpr std::uint64_t sequences = philox_subsequences;

/// Four numbers of a sequence, before mean and deviation.
inline void four(const Random& random, std::uint64_t sequence, std::uint64_t step, float* into) {
  const Block bits = block(random.seed, sequence, step);
  float values[4];
  for (int i = 0; i < 4; ++i) values[i] = uniform(bits.words[i]);
  switch (random.distribution) {
    case Distribution::bits:
      std::memcpy(into, bits.words, sizeof bits.words);
      break;
    case Distribution::uniform:
      std::memcpy(into, values, sizeof values);
      break;
    case Distribution::normal:
    case Distribution::log_normal:
      normal(values[0], values[1], into);
      normal(values[2], values[3], into + 2);
  }
}
/// Of doubles, each of two words: of two blocks.
inline void four(const Random& random, std::uint64_t sequence, std::uint64_t step, double* into) {
  double values[4];
  for (std::uint64_t half = 0; half < 2; ++half) {
    const Block bits = block(random.seed, sequence, step + half);
    values[2 * half] = uniform(bits.words[0], bits.words[1]);
    values[2 * half + 1] = uniform(bits.words[2], bits.words[3]);
  }
  if (random.distribution == Distribution::uniform) {
    std::memcpy(into, values, sizeof values);
    return;
  }
  normal(values[0], values[1], into);
  normal(values[2], values[3], into + 2);
}

template <class T>
void generate(const Random& random, std::uint64_t first, std::uint64_t end, T* output) {
  const RandomCourse course(random);
  for (std::uint64_t done = first; done < end;) {
    const std::uint64_t turn = course.first_turn() + done, of_cycle = turn % course.turns_of_cycle();
    T values[4] = {};
    four(random, of_cycle / 4, course.row_in(turn / course.turns_of_cycle()), values);
    for (std::uint64_t i = of_cycle % 4; i < 4 && done < end; ++i, ++done) {
      const T value = shaped(random, values[i]);
      // Bits are words of their own: as a number, some would be changed.
      std::memcpy(output + done, random.distribution == Distribution::bits ? values + i : &value,
                  sizeof value);
    }
  }
}

}  // namespace gpupool::operations::philox
