// Values while code is made: what all 32 lanes hold at once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "softgpu/exec/run/warp.h"

namespace softgpu::jit {

// What is added for each lane to a scalar, known when code is made: thread indices are such values, and so
// are the addresses that most kernels compute from them.
using Offsets = std::array<int64_t, warp_lanes>;

// A value is a scalar (the same for all lanes), a scalar plus offsets, or a vector of 32 lanes. Predicates
// are scalars (i1) or one i32 with a bit for each lane.
struct Value {
  char size = 'w';  // register size as in opcode signatures
  bool scalar = false;
  std::shared_ptr<const Offsets> offsets;  // of a scalar; null: none
  std::string text;                        // in the intermediate language
  std::optional<uint64_t> literal;         // the scalar, where it is known

  [[nodiscard]] bool uniform() const { return scalar && offsets == nullptr; }
};

// What is known of a register over the whole function.
struct Knowledge {
  enum class Kind : uint8_t { nothing, scalar, vector } kind = Kind::nothing;
  std::shared_ptr<const Offsets> offsets;
  std::optional<uint64_t> literal;
};

inline bool same_offsets(const std::shared_ptr<const Offsets>& a, const std::shared_ptr<const Offsets>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace softgpu::jit
