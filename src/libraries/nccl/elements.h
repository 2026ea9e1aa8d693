// Types of elements, and reductions of arrays of them.
#pragma once

#include <cstddef>
#include <span>

namespace gpupool::nccl {

/// ncclDataType_t.
enum class Type : int { i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3, f8e5m2 };
constexpr int types = 12;

/// ncclRedOp_t.
enum class Reduction : int { sum, prod, max, min, avg };
constexpr int reductions = 5;

constexpr std::size_t size_of(Type type) {
  constexpr std::size_t sizes[types] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[static_cast<int>(type)];
}

/// Types of 8-bit floating point are carried, not computed with.
constexpr bool reduces(Type type) {
  return type < Type::f8e4m3;
}

/// Reduces arrays of `count` elements, in their order, into `result`, which may be one of them. Halves are
/// computed in single precision and rounded once. An average of integers is cut off.
void reduce(Type type, Reduction reduction, std::span<const std::byte* const> arrays, std::size_t count,
            std::byte* result);

/// Multiplies each of `count` elements by the factor, in the same way.
void multiply(Type type, std::byte* elements, std::size_t count, const std::byte* factor);

}  // namespace gpupool::nccl
