// How Instruction::aux describes a texture or surface access; shared by lowering and handlers.
#pragma once

#include <cstdint>

namespace softgpu::texture_operand {

inline constexpr uint32_t layered = 4;  // the first coordinate is the layer
inline constexpr uint32_t whole = 8;    // coordinates are integers
// What happens outside of a surface.
inline constexpr uint32_t mode_mask = 3 << 4;
inline constexpr uint32_t trap = 0 << 4, clamp = 1 << 4, zero = 2 << 4;

constexpr uint32_t dimensions(uint32_t aux) {
  return aux & 3;
}
// Of a surface access: how many registers.
constexpr uint32_t elements(uint32_t aux) {
  return aux >> 8;
}

}  // namespace softgpu::texture_operand
