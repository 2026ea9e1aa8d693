// The numbers of an operation, by each generator.
#pragma once

#include "libraries/operations/mrg32k3a.h"
#include "libraries/operations/philox.h"
#include "libraries/operations/random_turns.h"
#include "libraries/operations/sobol.h"
#include "libraries/operations/xorwow.h"

namespace gpupool::operations {

/// The numbers [first, end) of an operation, to `output` + `first`.
inline void generate(const Random& random, std::uint64_t first, std::uint64_t end, void* output) {
  const auto fill = [&](auto* numbers) {
    switch (random.generator) {
      case RandomGenerator::philox:
        philox::generate(random, first, end, numbers);
        break;
      case RandomGenerator::xorwow:
        generate_by_turns<xorwow::Subsequences>(random, first, end, numbers);
        break;
      case RandomGenerator::mrg32k3a:
      case RandomGenerator::mrg32k3a_legacy:
        generate_by_turns<mrg32k3a::Subsequences>(random, first, end, numbers);
        break;
      case RandomGenerator::sobol32:
        sobol::generate<std::uint32_t>(random, first, end, numbers);
        break;
      case RandomGenerator::sobol64:
        sobol::generate<std::uint64_t>(random, first, end, numbers);
    }
  };
  if (random.doubles != 0) {
    fill(static_cast<double*>(output));
  } else {
    fill(static_cast<float*>(output));
  }
}

}  // namespace gpupool::operations
