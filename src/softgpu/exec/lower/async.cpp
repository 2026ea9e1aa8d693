// What other architectures do in the background, and we at once: cp.async, bulk copies and reductions,
// st.async, red.async, and the mbarrier objects that tell of their end.
#include <algorithm>

#include "softgpu/exec/lower/lowering.h"
#include "softgpu/exec/program/memory_suffix.h"
#include "softgpu/ptx/error.h"

namespace softgpu {

using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;

void Lowering::lower_cp(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (suffixes.size() < 2 || (suffixes[0] != "async" && suffixes[0] != "reduce")) fail_opcode();
  if (suffixes[0] == "reduce" || suffixes[1] == "bulk") return lower_bulk(instruction, suffixes);
  const std::vector<Operand>& operands = instruction.operands;
  if (suffixes[1] == "commit_group" || suffixes[1] == "wait_group" || suffixes[1] == "wait_all") {
    emit("@nothing", {}, {});  // copies are finished when they were issued
    return;
  }
  if (suffixes[1] == "mbarrier") {
    // cp.async.mbarrier.arrive[.noinc].shared.b64 [bar]: the copies are done, so this is an arrival.
    bool increments = true;
    for (const std::string_view s : Suffixes(suffixes.begin() + 2, suffixes.end())) {
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
      emit("@mbarrier.arrive", {temporary('x')}, {at, immediate(1, 'w'), immediate(0, 'w')}).in.aux = how;
    else
      emit("@nothing", {}, {});
    return;
  }
  lower_copy_async(instruction, suffixes);
}

// cp.async.{ca,cg}.shared.global [to], [from], bytes [, bytes to read | predicate to read none] [, policy]
void Lowering::lower_copy_async(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  const std::vector<Operand>& operands = instruction.operands;
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

// cp.async.bulk.<to>.<from>.<completion>[.multicast::cluster][.cp_mask][.L2::cache_hint]
//     [to], [from], bytes [, [mbarrier]] [, which blocks] [, policy] [, which bytes]
// cp.reduce.async.bulk.<to>.<from>.<completion>.<operation>.<type> [to], [from], bytes [, [mbarrier]]
void Lowering::lower_bulk(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  constexpr uint32_t has_barrier_flag = 1 << 12, has_mask_flag = 1 << 13;  // as in handlers/bulk.cpp
  const bool reduces = suffixes[0] == "reduce";
  std::vector<Space> spaces;
  bool pays = false, in_group = false, multicast = false, policy = false, masked = false;
  std::string operation;
  for (size_t i = reduces ? 3 : 2; i < suffixes.size(); ++i) {
    const std::string_view s = suffixes[i];
    if (i == 2 && (s == "commit_group" || s == "wait_group" || s == "prefetch")) {
      if (instruction.operands.size() > 3) fail("too many operands");
      emit("@nothing", {}, {});  // copies are finished when they were issued
      return;
    }
    if (const auto space = space_named(s); space && spaces.size() < 2) {
      spaces.push_back(*space);
    } else if (s == "mbarrier::complete_tx::bytes") {
      pays = true;
    } else if (s == "bulk_group") {
      in_group = true;
    } else if (s == "multicast::cluster") {
      multicast = true;
    } else if (s == "L2::cache_hint") {
      policy = true;
    } else if (s == "cp_mask" && !reduces) {
      masked = true;
    } else if (reduces) {
      operation += "." + std::string(s);
    } else {
      fail_opcode();
    }
  }
  if (spaces.size() != 2 || pays == in_group || reduces == operation.empty() ||
      instruction.operands.size() < 3)
    fail_opcode();
  const std::vector<Operand>& operands = instruction.operands;
  size_t next = 0;
  auto take = [&]() -> const Operand& {
    if (next >= operands.size()) fail("too few operands");
    return operands[next++];
  };
  uint32_t how_to = 0, how_from = 0, how_barrier = 0;
  const Ref to = plain_address(take(), spaces[0], how_to);
  const Ref from = plain_address(take(), spaces[1], how_from);
  const Ref bytes = source(take(), 'w');
  const Ref barrier = pays ? plain_address(take(), Space::shared, how_barrier) : immediate(0, 'x');
  if (multicast) source(take(), 'h');  // a cluster is one block
  if (policy) source(take(), 'x');
  const Ref mask = masked ? source(take(), 'h') : immediate(0, 'h');
  if (next != operands.size()) fail("too many operands");
  emit(reduces ? "@bulk.reduce" + operation : "@bulk.copy", {}, {to, from, bytes, barrier, mask}).in.aux =
      how_to | how_from << 4 | how_barrier << 8 | (pays ? has_barrier_flag : 0) |
      (masked ? has_mask_flag : 0);
}

void Lowering::pay_barrier(const Operand& barrier, uint32_t bytes) {
  uint32_t how = 0;
  const Ref at = plain_address(barrier, Space::shared, how);
  emit("@mbarrier.change_bytes", {}, {at, immediate(bytes, 'w')}).in.aux = how | 16;
}

// red.async.<...>.mbarrier::complete_tx::bytes.<operation>.<type> [a], b, [mbarrier]; a block is its whole
// cluster.
void Lowering::lower_red_async(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (std::find(suffixes.begin(), suffixes.end(), "mmio") !=
      suffixes.end()) {  // an ordinary reduction, done at once
    return lower_atom(instruction, Suffixes(suffixes.begin() + 1, suffixes.end()));
  }
  const AtomicForm form = atomic_form(suffixes);
  if (instruction.operands.size() != 3 || form.elements != 1 || form.space != Space::shared) fail_opcode();
  const Address at = address(instruction.operands[0], form.space);
  const Ref b = source(instruction.operands[1], form.size);
  LoweredInstruction& made = emit(form.step, {temporary(form.size)}, {at.base, b, b});
  made.in.immediate = at.offset;
  made.in.aux = at.how;
  pay_barrier(instruction.operands[2], lane_bytes(form.size));
}

// st.async[.weak].shared::cluster.mbarrier::complete_tx::bytes[.vec].<type> [a], b, [mbarrier]
void Lowering::lower_store_async(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  Suffixes plain;
  bool pays = false;
  uint32_t bytes = 0, elements = 1;
  for (size_t i = 1; i < suffixes.size(); ++i) {
    if (suffixes[i] == "mbarrier::complete_tx::bytes") {
      pays = true;
      continue;
    }
    plain.push_back(suffixes[i]);
    if (const auto type = ptx::type_from_name(suffixes[i])) bytes = type->bytes;
    if (suffixes[i] == "v2" || suffixes[i] == "v4") elements = suffixes[i] == "v2" ? 2 : 4;
  }
  // st.async.mmio.release.sys.global is an ordinary store, done at once.
  if (!pays && std::find(plain.begin(), plain.end(), "mmio") != plain.end())
    return lower_st(instruction, plain);
  if (!pays || instruction.operands.size() != 3 || bytes == 0) fail_opcode();
  ptx::Instruction store = instruction;
  store.operands.pop_back();
  lower_st(store, plain);
  pay_barrier(instruction.operands[2], bytes * elements);
}

// st.bulk[.weak][.shared::cta] [a], bytes, 0
void Lowering::lower_store_bulk(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  Space space = Space::generic;
  for (size_t i = 1; i < suffixes.size(); ++i) {
    if (const auto named = space_named(suffixes[i]))
      space = *named;
    else if (suffixes[i] != "weak")
      fail_opcode();
  }
  const std::vector<Operand>& operands = instruction.operands;
  if (operands.size() != 3 || operands[2].kind != OperandKind::integer || operands[2].bits != 0)
    fail_opcode();
  uint32_t how = 0;
  const Ref to = plain_address(operands[0], space, how);
  emit("@bulk.zero", {}, {to, source(operands[1], 'x')}).in.aux = how;
}

void Lowering::lower_mbarrier(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  std::string operation;
  Space space = Space::generic;
  bool parity = false, expects = false;
  for (const std::string_view s : suffixes) {
    if (operation.empty())
      operation = s;
    else if (s == "parity")
      parity = true;
    else if (s == "expect_tx")
      expects = true;
    else if (s == "noComplete" || s == "b64" || s == "layout::v0" || is_order(s) || is_scope(s))
      continue;
    else if (const auto named = space_named(s))
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
    if (operands.size() > 3) fail("too many operands");
    const Ref given = operands.size() > 2 ? source(operand(2), 'w') : immediate(1, 'w');
    // With .expect_tx the third operand is bytes, and one thread arrives.
    const Ref count = expects ? immediate(1, 'w') : given, bytes = expects ? given : immediate(0, 'w');
    emit("@mbarrier." + operation, {state}, {at, count, bytes}).in.aux = how;
  } else if (operation == "expect_tx" || operation == "complete_tx") {
    const Ref at = plain_address(operand(0), space, how);
    const uint32_t pays = operation == "complete_tx" ? 16 : 0;
    emit("@mbarrier.change_bytes", {}, {at, source(operand(1), 'w')}).in.aux = how | pays;
  } else if (operation == "test_wait" || operation == "try_wait") {
    // A fourth operand of try_wait is a time limit; returning at once is always allowed.
    const Ref done = destination(operand(0), 'p');
    const Ref at = plain_address(operand(1), space, how);
    const Ref state = source(operand(2), parity ? 'w' : 'x');
    emit(parity ? "@mbarrier.test_parity" : "@mbarrier.test", {done}, {at, state}).in.aux = how;
  } else if (operation == "check_layout") {
    // Layout v0 is what .init makes unless told otherwise; another suffix has been refused above.
    const Ref zero = immediate(0, 'w');
    emit("setp.eq.u32", {destination(operand(0), 'p'), temporary('p')}, {zero, zero});
  } else if (operation == "pending_count") {
    emit("@mbarrier.pending_count", {destination(operand(0), 'w')}, {source(operand(1), 'x')});
  } else {
    fail_opcode();
  }
}

}  // namespace softgpu
