// How Instruction::immediate describes a video instruction; shared by lowering and handlers.
#pragma once

#include <bit>
#include <cstdint>

namespace softgpu::video {

enum Operation : uint64_t {
  add,
  subtract,
  absolute_difference,
  minimum,
  maximum,
  shift_left,
  shift_right,
  set,
  multiply_add
};
enum Second : uint64_t { none, then_add, then_minimum, then_maximum };

struct Form {
  uint64_t operation : 4 = add;
  uint64_t result_signed : 1 = 0, a_signed : 1 = 0, b_signed : 1 = 0;
  uint64_t saturates : 1 = 0;
  uint64_t second : 2 = none;   // what the result does with c
  uint64_t wraps : 1 = 0;       // shift amounts modulo 32, else at most 32
  uint64_t comparison : 3 = 0;  // eq ne lt le gt ge
  uint64_t shift : 4 = 0;       // vmad: 0, 7 or 15
  uint64_t plus_one : 1 = 0;    // vmad
  uint64_t negate_product : 1 = 0, negate_c : 1 = 0;
  uint64_t parts : 3 = 1;                       // 1, 2 or 4
  uint64_t a_parts : 12 = 0, b_parts : 12 = 0;  // of 2 and 4: three bits per part, which of b:a
  uint64_t mask : 4 = 0;                        // of 2 and 4: the parts that are written
  // Of one part: bytes of the operand (0: all) and which.
  uint64_t a_bytes : 2 = 0, a_index : 2 = 0, b_bytes : 2 = 0, b_index : 2 = 0, d_bytes : 2 = 0,
                     d_index : 2 = 0;
};
static_assert(sizeof(Form) == 8);

inline int64_t pack(const Form& form) {
  return std::bit_cast<int64_t>(form);
}
inline Form unpack(int64_t bits) {
  return std::bit_cast<Form>(bits);
}

}  // namespace softgpu::video
