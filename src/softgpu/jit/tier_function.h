// The interpreter's form of a function that tier 1 compiles. Compiled code leaves to it wherever it has no
// code of its own, so every virtual register has a home of its own in the register file.
#pragma once

#include <vector>

#include "softgpu/exec/program/lowered.h"

namespace softgpu::jit {

struct TierFunction {
  TierFunction(const LoweredFunction& lowered, const Function& original);
  TierFunction(const TierFunction&) = delete;
  TierFunction& operator=(const TierFunction&) = delete;

  Function function;
  std::vector<Instruction> calls;  // parallel to function.code: registers are places of the scratch area
  std::vector<uint32_t> home;      // byte offset by virtual register
  std::vector<uint32_t> stage;     // one place by virtual register, for scalars and predicates
  uint32_t scratch = 0;            // byte offset

  // Scratch place of operand k of an instruction; of element k of its list.
  [[nodiscard]] uint32_t operand_place(uint32_t k) const { return scratch + k * place_bytes; }
  [[nodiscard]] uint32_t list_place(uint32_t k) const { return scratch + (operand_places + k) * place_bytes; }

 private:
  static constexpr uint32_t place_bytes = 512, operand_places = 6;  // 32 lanes of 128 bits
  std::vector<uint32_t> call_lists_;
};

}  // namespace softgpu::jit
