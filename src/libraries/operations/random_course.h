// How a generator of cuRAND goes through its subsequences: which of them makes a number, and from which of
// its words.
//
// Subsequences take turns. In a *cycle* each has its turn once (of Philox: four times, for the four words
// of a block), and makes an *item*: a number, or two where XORWOW or MRG32k3a makes them in pairs. An item
// takes `rows_of_item` of a subsequence's words (of Philox: of its blocks).
//
// A position is `row` times the turns of a cycle + `turn`: subsequences from `turn` on are at `row`. Those
// before have had their turn, and are ahead by `begun_rows` (0: by one). So NVIDIA's generators count
// offsets, too. If kinds of items change within a cycle, or an offset is in the middle of one, NVIDIA's
// know for each subsequence how far it is; here those that are behind leave words out, and no word is used
// twice.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/random.h"

namespace gpupool::operations {

/// Subsequences of each generator; a block of Philox has four words.
inline constexpr std::uint64_t xorwow_subsequences = 4096, philox_subsequences = 65536, philox_words = 4;
inline constexpr std::uint64_t mrg32k3a_subsequences = 81920, mrg32k3a_legacy_subsequences = 4096;

/// In a cycle of a generator.
inline std::uint64_t turns_of(RandomGenerator generator) {
  switch (generator) {
    case RandomGenerator::philox:
    case RandomGenerator::sobol32:  // has no cycles
    case RandomGenerator::sobol64:
      break;
    case RandomGenerator::xorwow:
      return xorwow_subsequences;
    case RandomGenerator::mrg32k3a:
      return mrg32k3a_subsequences;
    case RandomGenerator::mrg32k3a_legacy:
      return mrg32k3a_legacy_subsequences;
  }
  return philox_subsequences * philox_words;
}

class RandomCourse {
 public:
  explicit RandomCourse(const Random& random)
      : turns_(turns_of(random.generator)),
        numbers_(random.generator != RandomGenerator::philox && random.pairs() ? 2 : 1),
        // MRG32k3a makes a double of one word.
        rows_(numbers_ * (random.doubles != 0 && !is_mrg32k3a(random.generator) ? 2 : 1)),
        row_(random.position / turns_),
        turn_(random.position % turns_),
        first_rows_(std::max<std::uint64_t>({rows_, random.begun_rows, 1})) {}

  [[nodiscard]] std::uint64_t turns_of_cycle() const { return turns_; }
  [[nodiscard]] std::uint64_t numbers_of_item() const { return numbers_; }
  [[nodiscard]] std::uint64_t rows_of_item() const { return rows_; }
  /// The turn of the first item. Those of the others follow, through all cycles.
  [[nodiscard]] std::uint64_t first_turn() const { return turn_; }
  /// Where a subsequence is at its turn.
  [[nodiscard]] std::uint64_t row_in(std::uint64_t cycle) const {
    return cycle == 0 ? row_ : row_ + first_rows_ + (cycle - 1) * rows_;
  }

  /// Sets `random`, of which this is the course, to where the numbers after its own begin.
  void advance(Random& random) const {
    const std::uint64_t end = turn_ + random.count / numbers_, cycle = end / turns_, turn = end % turns_;
    random.position = row_in(cycle) * turns_ + turn;
    random.begun_rows = static_cast<std::uint8_t>(turn == 0 ? 0 : cycle == 0 ? first_rows_ : rows_);
  }

 private:
  std::uint64_t turns_, numbers_, rows_;
  std::uint64_t row_, turn_;
  std::uint64_t first_rows_;  // that the first cycle takes, part of which may be over
};

/// Sets an operation to where the numbers after its own begin.
inline void advance(Random& random) {
  if (is_sobol(random.generator)) {
    random.position += random.count;
  } else {
    RandomCourse(random).advance(random);
  }
}

}  // namespace gpupool::operations
