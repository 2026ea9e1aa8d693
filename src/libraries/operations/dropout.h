// Dropout: numbers are left out at random, and its gradient leaves out the same ones.
#pragma once

#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

enum class Dropping : std::uint8_t {
  seed = 0,      // states are made
  forward = 1,   // random numbers decide, and the mask says how
  backward = 2,  // the mask decides
};

/// What `states` points to. It lies in device memory, so that the next operation goes on where the one before
/// ended, whoever launched it.
struct DropoutStates {
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  // of the next number in the seed's sequence
  std::uint64_t done = 0;      // parts of the operation that is under way
};

/// into = from / (1 - rate), or 0 where it is left out. The mask has one bit for each element in the order of
/// indices, the lowest bit of a byte first: 1 where it is kept.
struct Dropout {
  static constexpr const char* name = "cudnn_dropout";
  static constexpr std::int64_t elements_of_a_part = 1 << 15;  // so that no byte of the mask has two writers

  Tensor from, into;
  std::uint64_t states = 0, mask = 0;
  std::uint64_t seed = 0;
  double rate = 0;
  Dropping what = Dropping::seed;
  std::uint8_t reserved[7] = {};

  [[nodiscard]] bool sound() const { return from.sound() && into.sound(); }
  [[nodiscard]] std::uint64_t parts() const {
    return static_cast<std::uint64_t>((into.elements() + elements_of_a_part - 1) / elements_of_a_part);
  }
};

/// Bytes of the mask of so many elements.
constexpr std::int64_t bytes_of_mask(std::int64_t elements) {
  return (elements + 7) / 8;
}

}  // namespace gpupool::operations
