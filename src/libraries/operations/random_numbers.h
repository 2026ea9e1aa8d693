// The numbers of an operation, by either generator.
#pragma once

#include "libraries/operations/philox.h"
#include "libraries/operations/xorwow.h"

namespace gpupool::operations {

/// The numbers [first, end) of an operation, to `output` + `first`.
inline void generate(const Random& random, std::uint64_t first, std::uint64_t end, void* output) {
  const auto fill = [&](auto* numbers) {
    if (random.generator == RandomGenerator::xorwow) {
      xorwow::generate(random, first, end, numbers);
    } else {
      philox::generate(random, first, end, numbers);
    }
  };
  if (random.doubles != 0) {
    fill(static_cast<double*>(output));
  } else {
    fill(static_cast<float*>(output));
  }
}

}  // namespace gpupool::operations
