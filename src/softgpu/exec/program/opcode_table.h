// The table of opcode semantics: full PTX opcode -> handler and operand signature.
//
// Patterns: "add{.sat,}.{s32,u32}" stands for every string that choosing one alternative per brace gives.
// Signatures: destinations '=' sources, each one letter for the register's size:
//   p predicate   h 16 bit   w 32 bit   x 64 bit   q 128 bit
//   "w:p" a destination pair w|p whose second half may be absent
//   "{w4}" a vector operand of four 32-bit registers
//   '?' after a source: may be absent (then an all-zero register stands in, for predicates all-false)
//   '#' a constant that goes into Instruction::immediate
// Names that begin with '@' are internal steps which lowering uses for opcodes with irregular operands.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/exec/program/program.h"

namespace softgpu {

struct Opcode {
  Handler handler = nullptr;
  const char* signature = "";
  uint32_t aux = 0;
  std::string_view name = {};  // full; lives as long as the table
};

class OpcodeTable {
 public:
  void add(std::string_view pattern, const char* signature, Handler handler, uint32_t aux = 0);
  // The pattern in parts. Joined out of line: registration is most of the text of some handlers' files.
  void add(std::initializer_list<std::string_view> parts, const char* signature, Handler handler,
           uint32_t aux = 0);
  [[nodiscard]] const Opcode* find(std::string_view name) const;
  // Every name, sorted; those of internal steps begin with '@'.
  [[nodiscard]] std::vector<std::string_view> names() const;
  [[nodiscard]] bool has_base(std::string_view base) const;
  [[nodiscard]] size_t size() const { return opcodes_.size(); }
  // f(name, opcode) for all, in no order.
  template <class F>
  void for_each(F f) const {
    for (const auto& [name, opcode] : opcodes_) f(std::string_view(name), opcode);
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, Opcode, Hash, std::equal_to<>> opcodes_;
  std::unordered_map<std::string, bool, Hash, std::equal_to<>> bases_;
};

// The table whose handlers are compiled for the best instruction set that this processor has.
// GPUPOOL_SOFTGPU_ISA=baseline|avx2|avx512 chooses another one.
const OpcodeTable& opcode_table();

// Looks `name` up whatever the order of its suffixes that are no types: assemblers take `min.s32.relu` and
// `min.relu.s32` alike. `name` becomes the table's own; null if no such opcode is known.
const Opcode* find_in_any_order(std::string_view& name);

}  // namespace softgpu
