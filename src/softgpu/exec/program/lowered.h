// A function between lowering and register allocation: decoded instructions whose operands are still
// references to virtual registers or constants.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "softgpu/exec/program/program.h"

namespace softgpu {

// Register sizes as in opcode signatures.
inline uint32_t lane_bytes(char size) {
  switch (size) {
    case 'h':
      return 2;
    case 'w':
      return 4;
    case 'x':
      return 8;
    case 'q':
      return 16;
    default:
      return 0;  // predicates: 4 bytes for all lanes
  }
}

class Ref {
 public:
  static Ref reg(uint32_t index) { return Ref(index << 1); }
  static Ref constant(uint32_t index) { return Ref(index << 1 | 1); }
  static Ref from_bits(uint32_t bits) { return Ref(bits); }
  [[nodiscard]] bool is_constant() const { return bits_ & 1; }
  [[nodiscard]] uint32_t index() const { return bits_ >> 1; }
  [[nodiscard]] uint32_t bits() const { return bits_; }

 private:
  explicit Ref(uint32_t bits) : bits_(bits) {}
  uint32_t bits_;
};

enum class Flow : uint8_t { next, jump, conditional_jump, indexed_jump, end };

struct LoweredInstruction {
  Instruction in;    // in.op holds Ref bits; jumps: in.immediate is an index into labels
  uint8_t defs = 0;  // how many of in.op are written; the next `uses` are read
  uint8_t uses = 0;
  Flow flow = Flow::next;
  bool leaves = false;   // goes on in another function
  int address = -1;      // which of in.op is the address register of a load or store by rows
  bool is_copy = false;  // in.op[0] = in.op[1], nothing else
  bool guarded = false;
  uint32_t guard = 0;  // virtual predicate register
  bool guard_negated = false;
  std::vector<uint32_t> list;    // Ref bits, or for indexed jumps label indices
  uint32_t list_defs = 0;        // the first so many are written, the rest is read
  std::string_view opcode = {};  // full name in the opcode table
  bool ordered = false;  // a load or store that must happen as written: volatile, relaxed, acquire, ...
};

struct LoweredFunction {
  std::vector<LoweredInstruction> code;
  std::vector<char> registers;  // size letter of each virtual register
  std::vector<Constant> constants;
  std::vector<uint32_t> label_target;  // label -> index into code
};

// Removes copies of what never changes: constants, and registers written once before the first label.
void propagate_copies(LoweredFunction& lowered);

// Gives accesses that follow each other through one unchanged address register a common place for its shape
// (memory_operand.h): Instruction::op[shape_slot] becomes the number of the place, from 1. Returns how many
// there are.
uint32_t share_address_shapes(LoweredFunction& lowered);

// Assigns register file offsets by liveness and linear scan, and finishes `function`'s code.
void allocate_registers(LoweredFunction& lowered, Function& function);

}  // namespace softgpu
