// mov ld st atom red cvt cp.async and their kin.
#include <algorithm>

#include "softgpu/exec/lowering.h"
#include "softgpu/ptx/error.h"

namespace softgpu {
namespace {

using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;
using ptx::Type;

bool is_scope(std::string_view s) {
  return s == "cta" || s == "cluster" || s == "gpu" || s == "sys";
}
// Memory order: the interpreter's accesses are ordinary loads and stores of a processor whose order is
// strong enough for .acquire and .release; elsewhere atom and fence use sequential consistency.
bool is_order(std::string_view s) {
  return s == "weak" || s == "volatile" || s == "relaxed" || s == "acquire" || s == "release" ||
         s == "acq_rel" || s == "mmio";
}
// Caching has no effect on results.
bool is_cache_hint(std::string_view s) {
  return s == "nc" || s == "ca" || s == "cg" || s == "cs" || s == "lu" || s == "cv" || s == "wb" ||
         s == "wt" || s.starts_with("L1::") || s.starts_with("L2::") || s.starts_with("level::");
}
std::optional<Space> space_named(std::string_view s) {
  if (s == "global") return Space::global;
  if (s == "shared" || s == "shared::cta" || s == "shared::cluster") return Space::shared;
  if (s == "local") return Space::local;
  if (s == "const") return Space::constant;
  if (s == "param" || s == "param::entry" || s == "param::func") return Space::param;
  return std::nullopt;
}

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
    load.address = 1;
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
  load.in.aux = from.how | bytes << memory_operand::kBits;
  load.address = 0;
  load.list = std::move(list);
  load.ordered = form->ordered;
  load.list_defs = form->elements;
}

void Lowering::lower_st(const ptx::Instruction& instruction, const Suffixes& suffixes) {
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
    store.address = 0;
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
  store.in.aux = to.how | type.bytes * form->elements << memory_operand::kBits;
  store.address = 0;
  store.list = std::move(list);
  store.ordered = form->ordered;
}

void Lowering::lower_atom(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  const bool returns = instruction.opcode.starts_with("atom");
  Space space = Space::generic;
  std::string operation;
  std::optional<Type> type;
  std::string_view type_name;
  bool noftz = false, policy = false;
  for (const std::string_view s : suffixes) {
    if (s == "L2::cache_hint") {
      policy = true;
    } else if (is_order(s) || is_scope(s)) {
      continue;
    } else if (const auto named = space_named(s)) {
      space = *named;
    } else if (s == "noftz") {
      noftz = true;
    } else if (operation.empty()) {
      operation = s;
    } else if (!type && ptx::type_from_name(s)) {
      type = ptx::type_from_name(s);
      type_name = s;
    } else {
      fail_opcode();
    }
  }
  if (!type || operation.empty()) fail_opcode();
  const char size = natural_size(*type);
  const bool compares = operation == "cas";
  const size_t first = returns ? 1 : 0;
  const size_t expected = first + 2 + (compares ? 1 : 0);
  const std::vector<Operand>& operands = instruction.operands;
  if (operands.size() != expected && !(policy && operands.size() == expected + 1))
    fail("wrong number of operands");
  const Ref d = returns ? destination(operands[0], size) : temporary(size);
  const Address at = address(operands[first], space);
  if (at.kernel_parameter) fail("kernel parameters cannot be written");
  const Ref b = source(operands[first + 1], size);
  const Ref c = compares ? source(operands[first + 2], size) : b;
  LoweredInstruction& made =
      emit("@atom." + operation + (noftz ? ".noftz." : ".") + std::string(type_name), {d}, {at.base, b, c});
  made.in.immediate = at.offset;
  made.in.aux = at.how;
}

void Lowering::lower_cvt(const ptx::Instruction& instruction, const Suffixes&) {
  const Opcode* const opcode = table_.find(instruction.opcode);
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

void Lowering::lower_cp(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (suffixes.empty() || suffixes[0] != "async") fail_opcode();
  const std::vector<Operand>& operands = instruction.operands;
  if (suffixes.size() >= 2 &&
      (suffixes[1] == "commit_group" || suffixes[1] == "wait_group" || suffixes[1] == "wait_all")) {
    emit("@nothing", {}, {});  // copies are finished when they were issued
    return;
  }
  if (suffixes.size() >= 2 && suffixes[1] == "mbarrier") {
    // cp.async.mbarrier.arrive[.noinc].shared.b64 [bar]: the copies are done, so this is an arrival.
    bool increments = true;
    for (const std::string_view s :
         suffixes.empty() ? suffixes : Suffixes(suffixes.begin() + 2, suffixes.end())) {
      if (s == "noinc")
        increments = false;
      else if (s != "arrive" && s != "b64" && !space_named(s))
        fail_opcode();
    }
    if (operands.size() != 1) fail("one operand expected");
    Space space = Space::generic;
    for (const std::string_view s : suffixes) space = space_named(s).value_or(space);
    uint32_t how = 0;
    const Ref at = plain_address(operands[0], space, how);
    // Without .noinc the pending count was raised by one first: both together change nothing.
    if (!increments)
      emit("@mbarrier.arrive", {temporary('x')}, {at, immediate(1, 'w')}).in.aux = how;
    else
      emit("@nothing", {}, {});
    return;
  }
  bool to_shared = false;
  std::optional<Space> from;
  for (size_t i = 1; i < suffixes.size(); ++i) {
    const auto space = space_named(suffixes[i]);
    if (space && !to_shared) {
      if (*space != Space::shared) fail_opcode();
      to_shared = true;
    } else if (space) {
      from = *space;
    } else if (!is_cache_hint(suffixes[i])) {
      fail_opcode();
    }
  }
  if (!to_shared || from != Space::global || operands.size() < 3) fail_opcode();
  if (operands[2].kind != OperandKind::integer) fail("constant size expected");
  const uint64_t bytes = operands[2].bits;
  if (bytes != 4 && bytes != 8 && bytes != 16) fail("size must be 4, 8 or 16");
  uint32_t how_to = 0, how_from = 0;
  const Ref to_address = plain_address(operands[0], Space::shared, how_to);
  const Ref from_address = plain_address(operands[1], Space::global, how_from);
  Ref wanted = immediate(bytes, 'w');
  if (operands.size() >= 4) {
    if (size_of(operands[3], 'w') == 'p') {  // ignore-src: nothing is read where it holds
      const Ref ignore = source(operands[3], 'p');
      const Ref chosen = temporary('w');
      emit("selp.b32", {chosen}, {immediate(0, 'w'), wanted, ignore}).guarded = false;
      wanted = chosen;
    } else if (size_of(operands[3], 'w') == 'w') {
      wanted = source(operands[3], 'w');
    }
  }
  emit("@cp.async", {}, {to_address, from_address, wanted}).in.aux =
      how_to | how_from << 4 | static_cast<uint32_t>(bytes) << 8;
}

void Lowering::lower_mbarrier(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  std::string operation;
  Space space = Space::generic;
  bool parity = false;
  for (const std::string_view s : suffixes) {
    if (operation.empty())
      operation = s;
    else if (s == "parity")
      parity = true;
    else if (s == "noComplete" || s == "expect_tx" || s == "b64" || is_order(s) || is_scope(s)) {
      if (s == "expect_tx") fail_opcode();  // transactions come from bulk copies, which are not supported
    } else if (const auto named = space_named(s))
      space = *named;
    else
      fail_opcode();
  }
  const std::vector<Operand>& operands = instruction.operands;
  uint32_t how = 0;
  auto operand = [&](size_t i) -> const Operand& {
    if (i >= operands.size()) fail("too few operands");
    return operands[i];
  };
  if (operation == "init") {
    const Ref at = plain_address(operand(0), space, how);
    emit("@mbarrier.init", {}, {at, source(operand(1), 'w')}).in.aux = how;
  } else if (operation == "inval") {
    const Ref at = plain_address(operand(0), space, how);
    emit("@mbarrier.inval", {}, {at}).in.aux = how;
  } else if (operation == "arrive" || operation == "arrive_drop") {
    const Ref state = destination(operand(0), 'x');
    const Ref at = plain_address(operand(1), space, how);
    const Ref count = operands.size() > 2 ? source(operand(2), 'w') : immediate(1, 'w');
    emit("@mbarrier." + operation, {state}, {at, count}).in.aux = how;
  } else if (operation == "test_wait" || operation == "try_wait") {
    // A fourth operand of try_wait is a time limit; returning at once is always allowed.
    const Ref done = destination(operand(0), 'p');
    const Ref at = plain_address(operand(1), space, how);
    const Ref state = source(operand(2), parity ? 'w' : 'x');
    emit(parity ? "@mbarrier.test_parity" : "@mbarrier.test", {done}, {at, state}).in.aux = how;
  } else if (operation == "pending_count") {
    emit("@mbarrier.pending_count", {destination(operand(0), 'w')}, {source(operand(1), 'x')});
  } else {
    fail_opcode();
  }
}

void Lowering::lower_ldmatrix(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  // ldmatrix.sync.aligned.m8n8.x{1,2,4}[.trans][.shared].b16 d, [p]
  uint32_t count = 0;
  bool transposed = false;
  for (const std::string_view s : suffixes) {
    if (s == "x1")
      count = 1;
    else if (s == "x2")
      count = 2;
    else if (s == "x4")
      count = 4;
    else if (s == "trans")
      transposed = true;
    else if (s != "sync" && s != "aligned" && s != "m8n8" && s != "b16" && space_named(s) != Space::shared)
      fail_opcode();
  }
  if (count == 0 || instruction.operands.size() != 2) fail_opcode();
  const Operand& to = instruction.operands[0];
  const bool is_vector = to.kind == OperandKind::vector;
  if (is_vector ? to.elements.size() != count : count != 1) fail("wrong number of destination registers");
  std::vector<uint32_t> list;
  for (uint32_t k = 0; k < count; ++k)
    list.push_back(destination(is_vector ? to.elements[k] : to, 'w').bits());
  uint32_t how = 0;
  const Ref at = plain_address(instruction.operands[1], Space::shared, how);
  LoweredInstruction& made = emit(transposed ? "@ldmatrix.trans" : "@ldmatrix", {}, {at});
  made.in.aux = how;
  made.list = std::move(list);
  made.list_defs = count;
}

}  // namespace softgpu
