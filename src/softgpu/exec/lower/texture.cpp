// tex suld sust: the coordinates stand in the address operand, `[handle, {x, y}]`.
#include "softgpu/exec/lower/lowering.h"
#include "softgpu/exec/program/texture_operand.h"

namespace softgpu {
namespace {

using ptx::Operand;
using ptx::OperandKind;

struct Geometry {
  uint32_t dimensions;
  bool layered;
};

std::optional<Geometry> geometry_named(std::string_view s) {
  if (s == "1d") return Geometry{1, false};
  if (s == "2d") return Geometry{2, false};
  if (s == "3d") return Geometry{3, false};
  if (s == "a1d") return Geometry{1, true};
  if (s == "a2d") return Geometry{2, true};
  return std::nullopt;
}

}  // namespace

// Handle of the access; the registers of the coordinates go to `list`, without the padding that PTX asks for.
Ref Lowering::texture_address(const Operand& operand, uint32_t dimensions, bool layered,
                              std::vector<uint32_t>& list) {
  if (operand.kind != OperandKind::address || operand.elements.size() != 2 || operand.offset != 0) {
    fail("[handle, coordinates] expected");
  }
  const Operand& handle = operand.elements[0];
  if (handle.kind != OperandKind::reg) fail("texture references are not supported: use texture objects");
  const Operand& at = operand.elements[1];
  const uint32_t needed = dimensions + (layered ? 1 : 0);
  const bool vector = at.kind == OperandKind::vector;
  if (vector ? at.elements.size() < needed : needed != 1) fail("too few coordinates");
  for (uint32_t n = 0; n < needed; ++n) {
    list.push_back(source(vector ? at.elements[n] : at, 'w').bits());
  }
  return source(handle, 'x');
}

void Lowering::lower_tex(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  // tex.geometry.v4.dtype.ctype
  if (suffixes.size() != 4 || suffixes[1] != "v4" || instruction.operands.size() != 2) fail_opcode();
  const auto geometry = geometry_named(suffixes[0]);
  const bool known_type = suffixes[2] == "f32" || suffixes[2] == "u32" || suffixes[2] == "s32";
  const bool whole = suffixes[3] == "s32";
  if (!geometry || !known_type || (!whole && suffixes[3] != "f32")) fail_opcode();
  const Operand& to = instruction.operands[0];
  if (to.kind != OperandKind::vector || to.elements.size() != 4) fail("vector of 4 registers expected");
  std::vector<uint32_t> list;
  for (const Operand& part : to.elements) list.push_back(destination(part, 'w').bits());
  const Ref handle = texture_address(instruction.operands[1], geometry->dimensions, geometry->layered, list);
  LoweredInstruction& made = emit("@tex", {}, {handle});
  made.in.aux = geometry->dimensions | (geometry->layered ? texture_operand::layered : 0) |
                (whole ? texture_operand::whole : 0);
  made.list = std::move(list);
  made.list_defs = 4;
}

void Lowering::lower_surface(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  // suld.b.geometry[.cop][.vec].type.clamp d, [s, c]   sust.b.geometry[.cop][.vec].type.clamp [s, c], v
  const bool loads = instruction.opcode.starts_with("suld");
  std::optional<Geometry> geometry;
  uint32_t count = 1, mode = texture_operand::trap;
  std::string_view type;
  bool unformatted = false;
  for (const std::string_view s : suffixes) {
    if (s == "b" && !unformatted) {
      unformatted = true;
    } else if (const auto named = geometry_named(s); named && !geometry) {
      geometry = named;
    } else if (s == "v2" || s == "v4") {
      count = s == "v2" ? 2 : 4;
    } else if (s == "b8" || s == "b16" || s == "b32" || s == "b64") {
      type = s;
    } else if (s == "trap" || s == "clamp" || s == "zero") {
      mode = s == "trap"    ? texture_operand::trap
             : s == "clamp" ? texture_operand::clamp
                            : texture_operand::zero;
    } else if (s != "ca" && s != "cg" && s != "cs" && s != "cv" && s != "wb" && s != "wt") {
      fail_opcode();
    }
  }
  if (!unformatted || !geometry || type.empty() || instruction.operands.size() != 2) fail_opcode();
  const Operand& value = instruction.operands[loads ? 0 : 1];
  const bool vector = value.kind == OperandKind::vector;
  if (vector ? value.elements.size() != count : count != 1) fail("wrong number of registers");
  const char size = type == "b64" ? 'x' : type == "b32" ? 'w' : 'h';
  std::vector<uint32_t> list;
  for (uint32_t n = 0; n < count; ++n) {
    const Operand& part = vector ? value.elements[n] : value;
    list.push_back((loads ? destination(part, size) : source(part, size)).bits());
  }
  const Ref handle =
      texture_address(instruction.operands[loads ? 1 : 0], geometry->dimensions, geometry->layered, list);
  LoweredInstruction& made = emit((loads ? "@suld." : "@sust.") + std::string(type), {}, {handle});
  made.in.aux = geometry->dimensions | (geometry->layered ? texture_operand::layered : 0) | mode | count << 8;
  made.list = std::move(list);
  made.list_defs = loads ? count : 0;
}

}  // namespace softgpu
