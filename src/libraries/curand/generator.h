// What a curandGenerator_t is: state of this process, never a message.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "libraries/curand/status.h"
#include "libraries/operations/random.h"

namespace gpupool::curand {

struct Generator {
  static constexpr std::uint32_t mark = 0x63726e64;

  std::uint32_t alive = mark;
  bool on_host = false;  // fills host memory
  operations::RandomGenerator kind = operations::RandomGenerator::philox;
  CUstream stream = nullptr;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::uint64_t position = 0;  // of the next number: what was generated is counted
  std::uint8_t begun_rows = 0;

  /// To the first number after the offset.
  void restart() {
    position = offset;
    begun_rows = 0;
  }
};

/// The generator, or null: then the call answers NOT_INITIALIZED, as for one that was destroyed.
inline Generator* find(void* generator) {
  auto* const found = static_cast<Generator*>(generator);
  return found != nullptr && found->alive == Generator::mark ? found : nullptr;
}

}  // namespace gpupool::curand
