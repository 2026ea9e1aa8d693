// What an instruction does to memory, by its handler: the part of access_kind.h that knows the opcode table.
#include <string_view>
#include <unordered_map>

#include "softgpu/exec/program/access_kind.h"
#include "softgpu/exec/program/memory_operand.h"
#include "softgpu/exec/program/opcode_table.h"

namespace softgpu {

AccessKind access_kind(const Instruction& instruction) {
  static const auto* const known = [] {
    auto* const kinds = new std::unordered_map<Handler, AccessKind>;
    opcode_table().for_each([kinds](std::string_view name, const Opcode& opcode) {
      if (const AccessKind kind = access_kind(name); kind.known()) kinds->emplace(opcode.handler, kind);
    });
    return kinds;
  }();
  const auto found = known->find(instruction.handler);
  return found == known->end() ? AccessKind{} : found->second;
}

uint32_t access_bytes(const AccessKind& kind, const Instruction& instruction) {
  if (kind.step == AccessKind::Step::copy) return instruction.aux >> 8;
  if (kind.step == AccessKind::Step::bulk || kind.step == AccessKind::Step::wide)
    return 1;  // the fault names the byte
  return kind.vector ? instruction.aux >> memory_operand::address_bits : kind.element_bytes;
}

}  // namespace softgpu
