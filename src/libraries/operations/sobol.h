// Sobol's quasi-random numbers of one dimension, which are van der Corput's in another order. What becomes of
// their words: as in cuRAND's headers and by its host generators, which were compared.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "libraries/operations/random_values.h"

namespace gpupool::operations::sobol {

/// The bits of a number in Gray's code, the last one first. `Word`: 32 or 64 bits, after which numbers
/// repeat.
template <class Word>
Word word(Word number) {
  Word rest = number ^ number >> 1, made = 0;
  for (int i = 0; i < std::numeric_limits<Word>::digits; ++i, rest >>= 1)
    made = static_cast<Word>(made << 1 | (rest & 1));
  return made;
}

/// In (0, 1]. A double of 32 bits is as far from 0 as the words from each other.
template <class T, class Word>
T uniform(Word word) {
  if constexpr (std::is_same_v<T, float>) {
    return random_values::uniform(
        static_cast<std::uint32_t>(word >> (std::numeric_limits<Word>::digits - 32)));
  } else if constexpr (sizeof(Word) == 4) {
    return static_cast<double>(word) * 0x1p-32 + 0x1p-32;
  } else {
    return static_cast<double>(word >> 11) * 0x1p-53 + 0x1p-54;
  }
}

/// By the inverse of the distribution: pairs would spoil the sequence. Of large words their distance to the
/// largest one counts, which is more exact.
template <class T, class Word>
T normal(Word word) {
  constexpr bool wide = std::is_same_v<T, double> && sizeof(Word) == 8;
  constexpr unsigned bits = wide ? 53 : 32;
  std::uint64_t place = static_cast<std::uint64_t>(word) >> (std::numeric_limits<Word>::digits - bits);
  constexpr std::uint64_t half = std::uint64_t{1} << (bits - 1), largest = 2 * half - 1;
  const bool above = place > half;
  if (above) place = largest - place;
  constexpr T step = T(0.5) / static_cast<T>(half);
  const double distance =
      random_values::normal_distance(static_cast<double>(static_cast<T>(place) * step + step / 2));
  return static_cast<T>(above ? distance : -distance);
}

template <class T, class Word>
T number(const Random& random, Word word) {
  if (random.distribution == Distribution::bits) {
    T bits{};
    if constexpr (sizeof(T) == sizeof(Word)) std::memcpy(&bits, &word, sizeof word);
    return bits;
  }
  const bool is_uniform = random.distribution == Distribution::uniform;
  return random_values::shaped(random, is_uniform ? uniform<T>(word) : normal<T>(word));
}

/// The numbers [first, end) of an operation, to `output` + `first`.
template <class Word, class T>
void generate(const Random& random, std::uint64_t first, std::uint64_t end, T* output) {
  for (; first < end; ++first) {
    const T made = number<T>(random, word(static_cast<Word>(random.position + first)));
    std::memcpy(output + first, &made, sizeof made);
  }
}

}  // namespace gpupool::operations::sobol
