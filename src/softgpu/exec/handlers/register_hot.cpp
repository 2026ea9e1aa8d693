#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {

void register_hot(OpcodeTable& table) {
  register_move(table);
  register_integer(table);
  register_bits(table);
  register_float(table);
  register_compare(table);
  register_convert(table);
  register_memory(table);
  register_warp(table);
  register_math(table);
  register_matrix(table);
}

}  // namespace softgpu::SOFTGPU_ISA
