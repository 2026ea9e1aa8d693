// Reductions of the program's own: a sum of what each rank gives, times a factor of that rank.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

#include "libraries/nccl/elements.h"

namespace gpupool::nccl {

/// A factor in the element's type: here, or in device memory, where it is read when a call needs it.
struct Factor {
  Type type = Type::i8;
  std::array<std::byte, 8> value{};
  CUdeviceptr on_device = 0;
};

/// Those of one communicator by their numbers, which lie behind the built-in reductions'. They are this
/// process's: ranks know nothing of each other's.
class Factors {
 public:
  int add(const Factor& factor);
  /// False: there is none.
  [[nodiscard]] bool remove(int operation);
  [[nodiscard]] std::optional<Factor> find(int operation) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, Factor> all_;
  int next_ = reductions;
};

}  // namespace gpupool::nccl
