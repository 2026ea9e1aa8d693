// mov ld st atom red cvt and their kin.
#include <algorithm>

#include "softgpu/exec/lower/lowering.h"
#include "softgpu/exec/program/memory_suffix.h"
#include "softgpu/ptx/error.h"

namespace softgpu {
namespace {

using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;
using ptx::Type;

char natural_size(const Type& type) {
  return type.bytes <= 2 ? 'h' : type.bytes == 4 ? 'w' : type.bytes == 8 ? 'x' : 'q';
}
std::string memory_name(const Type& type, char register_size) {
  if (type.bytes == 16) return "b128";
  const bool extends_sign = type.kind == ptx::Kind::signed_integer && lane_bytes(register_size) > type.bytes;
  return (extends_sign ? "s" : "u") + std::to_string(8 * type.bytes);
}

struct MemoryForm {
  Space space = Space::generic;
  uint32_t elements = 1;
  std::optional<Type> type;
  bool cache_policy = false;  // one more operand, of no effect
  bool ordered = false;
};

}  // namespace

static std::optional<MemoryForm> memory_form(const std::vector<std::string_view>& suffixes) {
  MemoryForm form;
  for (const std::string_view s : suffixes) {
    if (s == "L2::cache_hint") {
      form.cache_policy = true;
    } else if (is_order(s) || is_scope(s) || is_cache_hint(s)) {
      form.ordered |= is_order(s) && s != "weak";
    } else if (const auto space = space_named(s)) {
      form.space = *space;
    } else if (s == "v2") {
      form.elements = 2;
    } else if (s == "v4") {
      form.elements = 4;
    } else if (s == "v8") {
      form.elements = 8;
    } else if (const auto type = ptx::type_from_name(s);
               type && !form.type && type->kind != ptx::Kind::predicate) {
      form.type = *type;
    } else {
      return std::nullopt;
    }
  }
  if (!form.type) return std::nullopt;
  return form;
}

void Lowering::lower_mov(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  const Opcode* const opcode = table_.find(instruction.opcode);
  if (opcode == nullptr || suffixes.size() != 1) fail_opcode();
  if (instruction.operands.size() != 2) fail("two operands expected");
  const Operand& to = instruction.operands[0];
  const Operand& from = instruction.operands[1];
  const char size = opcode->signature[0];
  if (to.kind != OperandKind::vector && from.kind != OperandKind::vector) {
    lower_regular(instruction, *opcode, instruction.opcode);
    lowered_.code.back().is_copy = size != 'p';
    return;
  }
  const Operand& vector = to.kind == OperandKind::vector ? to : from;
  if (size == 'p' || vector.elements.empty()) fail("vector operand expected");
  const uint32_t total = lane_bytes(size), count = static_cast<uint32_t>(vector.elements.size());
  const uint32_t bytes = total / count;
  const char element = bytes == 1 ? 'b' : bytes == 2 ? 'h' : bytes == 4 ? 'w' : 'x';
  if (bytes * count != total || bytes == total || (bytes == 1 && total > 4)) fail("vector of the wrong size");
  const char lane = element == 'b' ? 'h' : element;  // registers of 8 bits have lanes of 16
  const bool packs = from.kind == OperandKind::vector;
  std::vector<uint32_t> list;
  for (const Operand& part : vector.elements) {
    list.push_back((packs ? source(part, lane) : destination(part, lane)).bits());
  }
  const std::string step = std::string(packs ? "@pack." : "@unpack.") + element + "." + size;
  if (packs) {
    if (to.kind == OperandKind::vector) fail("register expected");
    emit(step, {destination(to, size)}, {}).list = std::move(list);
  } else {
    const Ref value = source(from, size);
    LoweredInstruction& unpack = emit(step, {}, {value});
    unpack.list = std::move(list);
    unpack.list_defs = count;
  }
}

void Lowering::lower_ld(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  const auto form = memory_form(suffixes);
  if (!form) fail_opcode();
  const size_t expected = 2 + (form->cache_policy ? 1 : 0);
  if (instruction.operands.size() != expected && instruction.operands.size() != 2)
    fail("two operands expected");
  const Operand& to = instruction.operands[0];
  const Address from = address(instruction.operands[1], form->space);
  const Type type = *form->type;
  const uint32_t bytes = type.bytes * form->elements;
  if (form->elements > 1 && (to.kind != OperandKind::vector || to.elements.size() != form->elements)) {
    fail("vector of " + std::to_string(form->elements) + " registers expected");
  }
  if (from.kernel_parameter) {
    // The parameter buffer is padded to a multiple of 16 bytes beyond the last parameter.
    const uint64_t end = signature_.bytes;
    if (from.offset < 0 || static_cast<uint64_t>(from.offset) + bytes > end)
      fail("reads beyond the parameters");
    for (uint32_t k = 0; k < form->elements; ++k) {
      const Operand& part = form->elements > 1 ? to.elements[k] : to;
      const char size = size_of(part, natural_size(type));
      const Ref d = destination(part, size);
      const auto offset = static_cast<uint64_t>(from.offset) + k * type.bytes;
      if (size == 'q') {
        emit("@load_parameter.b128.q", {d}, {}).in.immediate = static_cast<int64_t>(offset);
        continue;
      }
      // Parameters do not change during a launch: a constant, of which this is a copy.
      if (lane_bytes(size) < type.bytes) fail("destination register has the wrong size");
      Constant value;
      value.kind = Constant::Kind::parameter;
      value.lane_bytes = static_cast<uint8_t>(lane_bytes(size));
      value.parameter_bytes = static_cast<uint8_t>(type.bytes);
      value.sign_extends = type.kind == ptx::Kind::signed_integer;
      value.value = offset;
      emit(size == 'h'   ? "mov.b16"
           : size == 'w' ? "mov.b32"
                         : "mov.b64",
           {d}, {constant(value)})
          .is_copy = true;
    }
    return;
  }
  if (form->elements == 1) {
    const char size = size_of(to, natural_size(type));
    const Ref d = destination(to, size);
    LoweredInstruction& load = emit("@load." + memory_name(type, size) + "." + size, {d}, {from.base});
    load.in.immediate = from.offset;
    load.in.aux = from.how;
    if (size != 'q') load.address = 1;
    load.ordered = form->ordered;
    return;
  }
  // All elements take part in one access; registers wider than the rest (rare) are extended afterwards.
  char size = natural_size(type);
  for (const Operand& part : to.elements) size = size_of(part, size);
  std::vector<uint32_t> list;
  for (const Operand& part : to.elements) list.push_back(destination(part, size).bits());
  LoweredInstruction& load = emit("@vload." + memory_name(type, size) + "." + size, {}, {from.base});
  load.in.immediate = from.offset;
  load.in.aux = from.how | bytes << memory_operand::address_bits;
  load.address = 0;
  load.list = std::move(list);
  load.ordered = form->ordered;
  load.list_defs = form->elements;
}

void Lowering::lower_st(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (!suffixes.empty() && suffixes[0] == "async") return lower_store_async(instruction, suffixes);
  if (!suffixes.empty() && suffixes[0] == "bulk") return lower_store_bulk(instruction, suffixes);
  const auto form = memory_form(suffixes);
  if (!form) fail_opcode();
  if (instruction.operands.size() < 2 || instruction.operands.size() > (form->cache_policy ? 3u : 2u)) {
    fail("two operands expected");
  }
  const Operand& value = instruction.operands[1];
  const Address to = address(instruction.operands[0], form->space);
  if (to.kernel_parameter) fail("kernel parameters cannot be written");
  const Type type = *form->type;
  if (form->elements == 1) {
    const char size = size_of(value, natural_size(type));
    const Ref v = source(value, size);
    LoweredInstruction& store = emit("@store." + std::to_string(type.bytes) + "." + size, {}, {to.base, v});
    store.in.immediate = to.offset;
    store.in.aux = to.how;
    if (size != 'q') store.address = 0;
    store.ordered = form->ordered;
    return;
  }
  if (value.kind != OperandKind::vector || value.elements.size() != form->elements) {
    fail("vector of " + std::to_string(form->elements) + " registers expected");
  }
  char size = natural_size(type);
  for (const Operand& part : value.elements) size = size_of(part, size);
  std::vector<uint32_t> list;
  for (const Operand& part : value.elements) list.push_back(source(part, size).bits());
  LoweredInstruction& store = emit("@vstore." + std::to_string(type.bytes) + "." + size, {}, {to.base});
  store.in.immediate = to.offset;
  store.in.aux = to.how | type.bytes * form->elements << memory_operand::address_bits;
  store.address = 0;
  store.list = std::move(list);
  store.ordered = form->ordered;
}

void Lowering::lower_atom(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  const bool returns = instruction.opcode.starts_with("atom");
  if (!returns && !suffixes.empty() && suffixes[0] == "async") return lower_red_async(instruction, suffixes);
  AtomicForm form = atomic_form(suffixes);
  const std::vector<Operand>& operands = instruction.operands;
  const bool compares = form.operation == "cas";
  const size_t first = returns ? 1 : 0;
  const size_t expected = first + 2 + (compares ? 1 : 0);
  if (operands.size() != expected && !(form.policy && operands.size() == expected + 1))
    fail("wrong number of operands");
  const Address at = address(operands[first], form.space);
  if (at.kernel_parameter) fail("kernel parameters cannot be written");
  if (form.elements == 1) {
    const Ref d = returns ? destination(operands[0], form.size) : temporary(form.size);
    const Ref b = source(operands[first + 1], form.size);
    const Ref c = compares ? source(operands[first + 2], form.size) : b;
    LoweredInstruction& made = emit(form.step, {d}, {at.base, b, c});
    made.in.immediate = at.offset;
    made.in.aux = at.how;
    return;
  }
  // A vector is updated element by element: PTX promises no more. Results are kept apart until all operands
  // have been read.
  const Operand& values = operands[first + 1];
  if (compares || values.kind != OperandKind::vector || values.elements.size() != form.elements ||
      (returns &&
       (operands[0].kind != OperandKind::vector || operands[0].elements.size() != form.elements))) {
    fail("vector of " + std::to_string(form.elements) + " registers expected");
  }
  std::vector<Ref> results;
  for (uint32_t k = 0; k < form.elements; ++k) {
    const Ref b = source(values.elements[k], form.size);
    results.push_back(temporary(form.size));
    LoweredInstruction& made = emit(form.step, {results.back()}, {at.base, b, b});
    made.in.immediate = at.offset + static_cast<int64_t>(k * lane_bytes(form.size));
    made.in.aux = at.how;
  }
  if (!returns) return;
  for (uint32_t k = 0; k < form.elements; ++k) {
    const Ref d = destination(operands[0].elements[k], form.size);
    emit(form.size == 'h' ? "mov.b16" : "mov.b32", {d}, {results[k]});
  }
}

Lowering::AtomicForm Lowering::atomic_form(const Suffixes& suffixes) const {
  AtomicForm form;
  std::string_view type_name;
  bool noftz = false;
  for (const std::string_view s : suffixes) {
    if (s == "L2::cache_hint") {
      form.policy = true;
    } else if (is_order(s) || is_scope(s) || s == "async" || s == "mbarrier::complete_tx::bytes") {
      continue;
    } else if (const auto named = space_named(s)) {
      form.space = *named;
    } else if (s == "noftz") {
      noftz = true;
    } else if (s == "v2" || s == "v4" || s == "v8") {
      form.elements = static_cast<uint32_t>(s[1] - '0');
    } else if (const auto type = ptx::type_from_name(s); type && type_name.empty()) {
      form.size = natural_size(*type);
      type_name = s;
    } else if (form.operation.empty()) {
      form.operation = s;
    } else {
      fail_opcode();
    }
  }
  if (type_name.empty() || form.operation.empty()) fail_opcode();
  if (form.elements > 1 && (form.size != 'w' && form.size != 'h')) fail_opcode();
  form.step = "@atom." + form.operation + (noftz ? ".noftz." : ".") + std::string(type_name);
  return form;
}

void Lowering::lower_cvt(const ptx::Instruction& instruction, const Suffixes&) {
  std::string_view known = instruction.opcode;
  const Opcode* const opcode = find_in_any_order(known);
  if (opcode == nullptr) fail_opcode();
  // Operands may be wider than the types: sources are truncated, results extended by their sign.
  const std::string_view signature = opcode->signature;
  const std::vector<Operand>& operands = instruction.operands;
  if (signature.size() != 3 || operands.size() != 2)
    return lower_regular(instruction, *opcode, instruction.opcode);
  const char to_size = signature[0], from_size = signature[2];
  const char from_has = size_of(operands[1], from_size), to_has = size_of(operands[0], to_size);
  Ref value = Ref::reg(0);
  if (from_has == from_size) {
    value = source(operands[1], from_size);
  } else {
    value = temporary(from_size);
    const Ref wide = source(operands[1], from_has);
    emit(std::string("@trunc.") + from_has + "." + from_size, {value}, {wide}).guarded = false;
  }
  if (to_has == to_size) {
    emit(opcode->name, {destination(operands[0], to_size)}, {value});
    return;
  }
  const Ref narrow = temporary(to_size);
  emit(opcode->name, {narrow}, {value});
  const std::string_view name = instruction.opcode;
  const std::string_view before_last = name.substr(0, name.rfind('.'));
  const bool is_signed = before_last.substr(before_last.rfind('.') + 1).starts_with('s');
  emit(std::string(is_signed ? "@sext." : "@zext.") + to_size + "." + to_has,
       {destination(operands[0], to_has)}, {narrow});
}

// Hints about caches: no effect, whatever the operands.
void Lowering::lower_hint(const ptx::Instruction& instruction, const Suffixes&) {
  if (instruction.operands.empty()) fail("address expected");
  emit("@nothing", {}, {});
}

void Lowering::lower_createpolicy(const ptx::Instruction& instruction, const Suffixes&) {
  if (instruction.operands.empty()) fail("destination expected");
  emit("mov.b64", {destination(instruction.operands[0], 'x')}, {immediate(0, 'x')});
}

}  // namespace softgpu
