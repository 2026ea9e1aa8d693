// How Instruction::aux describes the address of a memory operand; shared by lowering and handlers.
#pragma once

#include <cstdint>

namespace softgpu::memory_operand {

inline constexpr uint32_t space_mask = 3;
inline constexpr uint32_t flat = 0;    // generic, global, constant: a host address
inline constexpr uint32_t shared = 1;  // offset in the block's shared memory
inline constexpr uint32_t local = 2;   // offset in the thread's local memory (with no_base: in the frame's)
inline constexpr uint32_t address32 = 4;  // the address register has 32 bits
inline constexpr uint32_t no_base = 8;    // the immediate is the whole address
// Instruction::op of loads and stores: where in the register file the shape of the address register is kept
// (0: nowhere), and whether this is the first access of those that share it.
inline constexpr uint32_t shape_slot = 5, shape_first = 4, shape_bytes = 64;
inline constexpr uint32_t address_bits = 4;  // handlers use aux from this bit on for themselves

}  // namespace softgpu::memory_operand
