#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {

// After register_hot: some opcodes reuse its handlers.
void register_cold(OpcodeTable& table) {
  register_carry(table);
  register_half(table);
  register_mixed(table);
  register_convert_half(table);
  register_convert_small(table);
  register_matrix_general(table);
  register_matrix_scaled(table);
  register_matrix_move(table);
  register_wmma(table);
  register_bulk(table);
  register_rare(table);
  register_atomic(table);
  register_barrier_object(table);
  register_control(table);
  register_texture(table);
}

}  // namespace softgpu::SOFTGPU_ISA
