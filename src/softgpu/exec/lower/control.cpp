// bra brx call ret bar.
#include "softgpu/exec/lower/lowering.h"
#include "softgpu/exec/program/builtin.h"
#include "softgpu/ptx/error.h"

namespace softgpu {

using ptx::Operand;
using ptx::OperandKind;

void Lowering::lower_bra(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (suffixes.size() > 1 || (suffixes.size() == 1 && suffixes[0] != "uni")) fail_opcode();
  if (instruction.operands.size() != 1 || instruction.operands[0].kind != OperandKind::name)
    fail("label expected");
  const Operand& target = instruction.operands[0];
  const uint32_t label = find_label(target.text, target.scope);
  if (instruction.guard >= 0) {
    LoweredInstruction& jump = emit("@bra_if", {}, {Ref::reg(static_cast<uint32_t>(instruction.guard))});
    jump.guarded = false;
    jump.in.aux = instruction.guard_negated;
    jump.in.immediate = label;
    jump.flow = Flow::conditional_jump;
  } else {
    LoweredInstruction& jump = emit("@bra", {}, {});
    jump.in.immediate = label;
    jump.flow = Flow::jump;
  }
}

void Lowering::lower_brx(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (suffixes.empty() || suffixes[0] != "idx" || suffixes.size() > 2) fail_opcode();
  if (instruction.guard >= 0) fail("a guarded indexed branch is not supported");
  if (instruction.operands.size() != 2 || instruction.operands[1].kind != OperandKind::name)
    fail("table expected");
  const Operand& name = instruction.operands[1];
  const ptx::BranchTable* const table = find_branch_table(name.text, name.scope);
  if (table == nullptr) fail("'" + std::string(name.text) + "' is no branch table");
  const Ref index = source(instruction.operands[0], 'w');
  std::vector<uint32_t> labels;
  for (const std::string_view target : table->targets) labels.push_back(find_label(target, table->scope));
  LoweredInstruction& jump = emit("@brx", {}, {index});
  jump.list = std::move(labels);
  jump.flow = Flow::indexed_jump;
}

FunctionSignature Lowering::pointed_signature(const Operand& name) const {
  const ptx::CallPrototype* const prototype =
      name.kind == OperandKind::name ? find_prototype(name.text, name.scope) : nullptr;
  if (prototype == nullptr) fail("a call through a pointer needs a prototype");
  if (prototype->target.empty()) return layout_signature(prototype->returns, prototype->parameters);
  const Symbol symbol = symbols_.resolve(prototype->target, current_->line);
  if (symbol.kind != Symbol::Kind::function)
    fail("'" + std::string(prototype->target) + "' is no function of the program");
  return symbols_.signature(symbol.index);
}

void Lowering::lower_call(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (suffixes.size() > 1 || (suffixes.size() == 1 && suffixes[0] != "uni")) fail_opcode();
  const std::vector<Operand>& operands = instruction.operands;
  static const std::vector<Operand> no_operands;
  size_t next = 0;
  const std::vector<Operand>* results = &no_operands;
  const std::vector<Operand>* arguments = &no_operands;
  if (next < operands.size() && operands[next].kind == OperandKind::list)
    results = &operands[next++].elements;
  if (next >= operands.size()) fail("function expected");
  const Operand& target = operands[next++];
  if (next < operands.size() && operands[next].kind == OperandKind::list)
    arguments = &operands[next++].elements;

  CallSite site;
  FunctionSignature formals;
  Ref target_register = immediate(0, 'x');
  if (target.kind == OperandKind::reg) {
    target_register = source(target, 'x');
    site.function = indirect_call;
    has_indirect_call = true;
    formals = pointed_signature(next < operands.size() ? operands[next] : Operand{});
  } else if (target.kind == OperandKind::name) {
    const Symbol symbol = symbols_.resolve(target.text, instruction.line);
    if (symbol.kind == Symbol::Kind::function) {
      site.function = symbol.index;
      called_functions.push_back(symbol.index);
      formals = symbols_.signature(symbol.index);
      // Its parameters are the launch's, not a caller's.
      if (formals.is_entry) fail("'" + std::string(target.text) + "' is a kernel, which cannot be called");
    } else if (symbol.kind == Symbol::Kind::builtin) {
      site.builtin = symbol.index + 1;
      const Builtin& builtin = builtins()[symbol.index];
      if (builtin.arguments != arguments->size()) fail("wrong number of arguments for a built-in function");
      uses_grid_sync |= builtin.grid_sync;
    } else {
      fail("'" + std::string(target.text) + "' is no function");
    }
  } else {
    fail("function expected");
  }
  // A declaration in another source may differ in its result (void here, a value there): linkers do not look.
  if (site.builtin == 0 && formals.parameters.size() != arguments->size())
    fail("the call does not match the signature of '" + std::string(target.text) + "'");
  site.callee_bytes = formals.bytes;

  // Registers and constants as arguments go through a hidden variable.
  auto hidden = [&](uint32_t bytes) {
    ptx::Variable variable;
    variable.bytes = variable.alignment = 16;
    variable.line = instruction.line;
    return CallArgument{layout_variable(variable, function_.local_bytes), 0, bytes};
  };
  auto argument_place = [&](const Operand& operand, const Formal* formal, bool is_result) -> CallArgument {
    if (operand.kind == OperandKind::name) {
      const Variable* const variable = find_variable(operand.text, operand.scope);
      if (variable == nullptr || variable->kind != Variable::Kind::local) {
        fail("'" + std::string(operand.text) + "' is no parameter variable");
      }
      return CallArgument{variable->offset, 0, variable->bytes};
    }
    // A constant has the parameter's size.
    const uint32_t bytes = formal != nullptr ? formal->bytes : operand.kind == OperandKind::real64 ? 8 : 4;
    const char size = size_of(operand, bytes == 8 ? 'x' : bytes <= 2 ? 'h' : 'w');
    if (size == 'p' || size == 'q') fail("argument of the wrong type");
    const CallArgument place = hidden(lane_bytes(size));
    if (!is_result) {
      const Ref value = source(operand, size);
      LoweredInstruction& store =
          emit("@store." + std::to_string(lane_bytes(size)) + "." + size, {}, {immediate(0, 'x'), value});
      store.in.immediate = place.caller_offset;
      store.in.aux = memory_operand::local | memory_operand::no_base;
    }
    return place;
  };
  std::vector<uint32_t> result_places;  // in this frame's local memory
  auto bind = [&](const std::vector<Operand>& actual, const std::vector<Formal>& formal, bool is_result,
                  std::vector<CallArgument>& into) {
    for (size_t i = 0; i < actual.size(); ++i) {
      const Formal* const like = i < formal.size() ? &formal[i] : nullptr;
      CallArgument place = argument_place(actual[i], like, is_result);
      if (is_result) result_places.push_back(place.caller_offset);
      if (like != nullptr) {
        place.callee_offset = like->offset;
        place.bytes = std::min(place.bytes, like->bytes);
      } else if (site.builtin == 0) {
        continue;  // a result that the function does not give
      }
      into.push_back(place);
    }
  };
  bind(*results, formals.returns, true, site.results);
  bind(*arguments, formals.parameters, false, site.arguments);
  function_.call_sites.push_back(site);
  LoweredInstruction& call = emit("@call", {}, {target_register});
  call.in.immediate = static_cast<int64_t>(function_.call_sites.size() - 1);
  call.leaves = true;
  for (size_t i = 0; i < results->size(); ++i) {
    const Operand& operand = (*results)[i];
    if (operand.kind == OperandKind::name || operand.kind == OperandKind::sink) continue;
    const char size = size_of(operand, 'w');
    const Ref d = destination(operand, size);
    LoweredInstruction& load =
        emit("@load.u" + std::to_string(8 * lane_bytes(size)) + "." + size, {d}, {immediate(0, 'x')});
    load.in.immediate = result_places[i];
    load.in.aux = memory_operand::local | memory_operand::no_base;
  }
}

void Lowering::lower_ret(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (suffixes.size() > 1 || (suffixes.size() == 1 && suffixes[0] != "uni")) fail_opcode();
  if (!instruction.operands.empty()) fail("no operands expected");
  emit("@ret", {}, {}).flow = Flow::end;
}

void Lowering::lower_bar(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  const std::vector<Operand>& operands = instruction.operands;
  if (instruction.opcode == "bar.warp.sync") {
    return lower_regular(instruction, *table_.find("bar.warp.sync"), instruction.opcode);
  }
  bool cluster = false, aligned = instruction.opcode.starts_with("bar.");
  std::string_view operation, reduction, type;
  for (const std::string_view s : suffixes) {
    if (s == "cta") continue;
    if (s == "cluster")
      cluster = true;
    else if (s == "aligned")
      aligned = true;
    else if (operation.empty())
      operation = s;
    else if (operation == "red" && reduction.empty())
      reduction = s;
    else if (operation == "red" && type.empty())
      type = s;
    else if (cluster && (s == "acquire" || s == "release" || s == "relaxed"))
      continue;
    else
      fail_opcode();
  }
  (void)aligned;  // threads are counted one by one either way
  auto operand = [&](size_t i) -> const Operand& {
    if (i >= operands.size()) fail("too few operands");
    return operands[i];
  };
  if (cluster) {
    // A cluster is one block: its barrier is one of the block, under a number of its own, in two steps.
    if (operation == "arrive") {
      emit("@barrier", {}, {immediate(cluster_barrier, 'w')}).in.aux = 0;
    } else if (operation == "wait") {
      emit("@barrier", {}, {immediate(cluster_barrier, 'w')}).in.aux = 64;
    } else {
      fail_opcode();
    }
    return;
  }
  if (operation == "sync" || operation == "arrive") {
    const bool waits = operation == "sync";
    if (operands.size() > 2 || (!waits && operands.size() != 2)) fail("wrong number of operands");
    const Ref id = source(operand(0), 'w');
    if (operands.size() == 2) {
      emit("@barrier", {}, {id, source(operand(1), 'w')}).in.aux = (waits ? 1 : 0) | 32;
    } else {
      emit("@barrier", {}, {id}).in.aux = 1;
    }
    return;
  }
  if (operation != "red") fail_opcode();
  const uint32_t kind = reduction == "popc" && type == "u32"   ? 1
                        : reduction == "and" && type == "pred" ? 2
                        : reduction == "or" && type == "pred"  ? 3
                                                               : 0;
  if (kind == 0) fail_opcode();
  const bool counted = operands.size() == 4;
  if (operands.size() != 3 && !counted) fail("wrong number of operands");
  const Ref d = destination(operands[0], kind == 1 ? 'w' : 'p');
  const Ref id = source(operands[1], 'w');
  const Ref p = source(operands.back(), 'p');
  const uint32_t aux = 1 | kind << 1 | (counted ? 32 : 0);
  // The result is written when the barrier opens, which may be long after: the destination must not share
  // a slot with anything that lives until then, and does not, because it is live from here on.
  if (counted) {
    emit("@barrier", {d}, {id, source(operands[2], 'w'), p}).in.aux = aux;
  } else {
    emit("@barrier", {d}, {id, p}).in.aux = aux;
  }
}

}  // namespace softgpu
