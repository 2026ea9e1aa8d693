// Pseudo-random numbers of cuRAND: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
// as easy as 1, 2, 3") in the order that NVIDIA documents. Computed by both ends: a generator of cuRAND may
// fill host memory too.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

namespace gpupool::operations {

enum class Distribution : std::uint8_t { bits = 0, uniform = 1, normal = 2, log_normal = 3 };

struct Random {
  static constexpr const char* name = "curand_generate";
  static constexpr std::uint64_t numbers_of_a_part = 1 << 16;

  std::uint64_t output = 0;
  std::uint64_t count = 0;
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  // of the first number, in the generator's sequence
  double mean = 0, deviation = 1;
  Distribution distribution = Distribution::bits;
  std::uint8_t doubles = 0;  // not 0: in place of floats
  std::uint8_t reserved[6] = {};

  [[nodiscard]] std::size_t bytes_of_number() const { return doubles != 0 ? 8 : 4; }
  [[nodiscard]] std::uint64_t parts() const {
    return count / numbers_of_a_part + (count % numbers_of_a_part != 0 || count == 0 ? 1 : 0);
  }
};

namespace philox {

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
inline constexpr std::uint64_t sequences = 65536;

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

/// The four numbers at position 4 · `index`, before mean and deviation.
inline void four(const Random& random, std::uint64_t index, float* into) {
  const Block bits = block(random.seed, index % sequences, index / sequences);
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
/// Of doubles, each of two words: a sequence gives eight words for four.
inline void four(const Random& random, std::uint64_t index, double* into) {
  double values[4];
  for (std::uint64_t half = 0; half < 2; ++half) {
    const Block bits = block(random.seed, index % sequences, index / sequences * 2 + half);
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
  for (std::uint64_t done = first; done < end;) {
    const std::uint64_t position = random.position + done, from = position % 4;
    T values[4];
    four(random, position / 4, values);
    for (std::uint64_t i = from; i < 4 && done < end; ++i, ++done) {
      T value = values[i];
      if (random.distribution >= Distribution::normal) {
        value = value * static_cast<T>(random.deviation) + static_cast<T>(random.mean);
        if (random.distribution == Distribution::log_normal) value = std::exp(value);
      }
      // Bits are words of their own: as a number, some would be changed.
      std::memcpy(output + done, random.distribution == Distribution::bits ? values + i : &value,
                  sizeof value);
    }
  }
}

}  // namespace philox

/// The numbers [first, end) of an operation, to `output` + `first`.
inline void generate(const Random& random, std::uint64_t first, std::uint64_t end, void* output) {
  if (random.doubles != 0) {
    philox::generate(random, first, end, static_cast<double*>(output));
  } else {
    philox::generate(random, first, end, static_cast<float*>(output));
  }
}

}  // namespace gpupool::operations
