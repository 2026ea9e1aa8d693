// How Instruction::aux describes the address of a memory operand; shared by lowering and handlers.
#pragma once

#include <cstdint>

namespace softgpu::memory_operand {

inline constexpr uint32_t kSpaceMask = 3;
inline constexpr uint32_t kFlat = 0;    // generic, global, constant: a host address
inline constexpr uint32_t kShared = 1;  // offset in the block's shared memory
inline constexpr uint32_t kLocal = 2;   // offset in the thread's local memory (with kNoBase: in the frame's)
inline constexpr uint32_t kAddress32 = 4;  // the address register has 32 bits
inline constexpr uint32_t kNoBase = 8;     // the immediate is the whole address
// Instruction::op of loads and stores: where in the register file the shape of the address register is kept
// (0: nowhere), and whether this is the first access of those that share it.
inline constexpr uint32_t kShapeSlot = 5, kShapeFirst = 4, kShapeBytes = 64;
inline constexpr uint32_t kBits = 4;  // handlers use aux from this bit on for themselves

}  // namespace softgpu::memory_operand
