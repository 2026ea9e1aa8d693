// What the parser makes of one PTX source. Text views point into the source, which must outlive this.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/debug_info.h"
#include "softgpu/ptx/types.h"

namespace softgpu::ptx {

enum class OperandKind : uint8_t {
  reg,      // index into Function::registers
  integer,  // bits
  real32,   // bits of the float
  real64,   // bits of the double
  name,     // special register, variable, label, function: text, scope
  address,  // [elements[0] + offset], [elements[0], elements[1]] of a texture
  vector,   // {a, b}
  list,     // (a, b), of a call
  pair,     // a|b
  sink      // _
};

struct Operand {
  OperandKind kind = OperandKind::sink;
  bool negated = false;  // !p, or -r of a video instruction
  uint32_t reg = 0;
  uint32_t scope = 0;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::string_view text;
  std::string_view selector;  // parts of a register, of a video instruction: "h0", "b3210"
  std::vector<Operand> elements;
};

struct Instruction {
  std::string_view opcode;  // with suffixes: "add.rn.f32"
  int32_t guard = -1;       // register index of @p
  bool guard_negated = false;
  int line = 0;
  std::vector<Operand> operands;
};

enum class Linkage : uint8_t { local, visible, external, weak, common };

// One element of an initialiser: a number, or an address (of a variable or function) plus offset,
// of which `mask` bits shifted to the lowest place are taken.
struct InitialValue {
  uint64_t place = 0;  // which element of the variable; those that are not named are zero
  OperandKind kind = OperandKind::integer;
  uint64_t bits = 0;
  std::string_view symbol;
  bool generic = false;
  uint64_t mask = ~uint64_t{0};
};

struct Variable {
  std::string_view name;
  Space space = Space::global;
  Linkage linkage = Linkage::local;
  Type type;
  uint64_t bytes = 0;
  uint64_t element_bytes = 0;  // of what name[i] counts
  uint64_t alignment = 1;
  bool unsized = false;  // `name[]`
  int line = 0;
  std::vector<InitialValue> initial;  // in the order of their places
};

struct Register {
  Type type;
};

struct Label {
  std::string_view name;
  uint32_t scope = 0;
  uint32_t instruction = 0;  // index of the instruction that follows
};

struct BranchTable {  // name: .branchtargets L1, L2;
  std::string_view name;
  uint32_t scope = 0;
  std::vector<std::string_view> targets;
};

// The signature of what a pointer points to. name: .callprototype (.param .b32 _) _ (.param .b64 _);
// or name: .calltargets f, g; which have the same one.
struct CallPrototype {
  std::string_view name;
  uint32_t scope = 0;
  std::vector<Variable> returns, parameters;
  std::string_view target;  // the first of .calltargets
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  Linkage linkage = Linkage::local;
  int line = 0;
  std::vector<Variable> returns, parameters;
  Dim3 max_block{0, 0, 0}, required_block{0, 0, 0};
  std::vector<Register> registers;
  std::vector<Instruction> instructions;
  std::vector<Label> labels;
  std::vector<BranchTable> branch_tables;
  std::vector<CallPrototype> prototypes;
  std::vector<Variable> variables;       // .shared, .local, .param (call arguments), .global, .const
  std::vector<uint32_t> variable_scope;  // parallel to variables
  std::vector<uint32_t> scope_parent;    // scope 0 is the body
};

struct Alias {
  std::string_view name, target;
  int line = 0;
};

struct Module {
  int version = 0;  // major * 10 + minor
  int target = 0;
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::vector<Alias> aliases;
  DebugInfo debug;
};

}  // namespace softgpu::ptx
