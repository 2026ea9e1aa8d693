// PTX fundamental types and state spaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace softgpu {

// Of a grid or a block: blocks, threads.
struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

}  // namespace softgpu

namespace softgpu::ptx {

enum class Kind : uint8_t {
  predicate,
  bits,
  unsigned_integer,
  signed_integer,
  floating,
  bfloat,
  packed_half,
  packed_bfloat
};

struct Type {
  Kind kind = Kind::bits;
  uint32_t bytes = 4;  // predicates: 1
  friend bool operator==(const Type&, const Type&) = default;
};

// "f32" -> {floating, 4}; nothing for what is not a fundamental type.
std::optional<Type> type_from_name(std::string_view name);

enum class Space : uint8_t { generic, global, constant, shared, local, param };

}  // namespace softgpu::ptx
