#include "softgpu/exec/lower/lowering.h"

#include <algorithm>

#include "softgpu/exec/lower/known_parameters.h"
#include "softgpu/ptx/error.h"

namespace softgpu {

uint32_t layout_variable(const ptx::Variable& variable, uint32_t& bytes) {
  constexpr uint32_t max_local_bytes = 512 * 1024;  // CUDA's own limit per thread
  const auto alignment = static_cast<uint32_t>(std::max<uint64_t>(variable.alignment, 1));
  const uint32_t offset = (bytes + alignment - 1) / alignment * alignment;
  if (variable.bytes > max_local_bytes || offset + variable.bytes > max_local_bytes) {
    syntax_error(variable.line, "more than 512 KiB of local memory");
  }
  bytes = offset + static_cast<uint32_t>(variable.bytes);
  return offset;
}

FunctionSignature layout_signature(const std::vector<ptx::Variable>& returns,
                                   const std::vector<ptx::Variable>& parameters) {
  FunctionSignature signature;
  auto place = [&](const std::vector<ptx::Variable>& variables, std::vector<Formal>& into) {
    for (const ptx::Variable& variable : variables) {
      const uint32_t offset = layout_variable(variable, signature.bytes);
      into.push_back(Formal{offset, static_cast<uint32_t>(variable.bytes)});
    }
  };
  place(returns, signature.returns);
  place(parameters, signature.parameters);
  return signature;
}

namespace {

// Opcodes that only hand a value on (global, constant and generic addresses are the same).
bool is_copying(std::string_view opcode) {
  return opcode == "cvta.to.global.u64" || opcode == "cvta.global.u64" || opcode == "cvta.to.const.u64" ||
         opcode == "cvta.const.u64" || opcode == "cvta.param.u64" || opcode == "cvta.to.param.u64";
}

}  // namespace

Lowering::Lowering(const ptx::Function& syntax, uint16_t source, const FunctionSignature& signature,
                   SymbolResolver& symbols, const Checks& checks, Function& function)
    : syntax_(syntax),
      source_(source),
      signature_(signature),
      symbols_(symbols),
      checks_(checks),
      function_(function),
      table_(opcode_table()) {}

const std::unordered_map<std::string_view, Lowering::Lowerer>& Lowering::irregular() {
  // Never destroyed, as the table of opcodes.
  static const auto& table = *new std::unordered_map<std::string_view, Lowerer>{
      {"mov", &Lowering::lower_mov},
      {"ld", &Lowering::lower_ld},
      {"ldu", &Lowering::lower_ld},
      {"st", &Lowering::lower_st},
      {"atom", &Lowering::lower_atom},
      {"red", &Lowering::lower_atom},
      {"cvt", &Lowering::lower_cvt},
      {"cp", &Lowering::lower_cp},
      {"prefetch", &Lowering::lower_hint},
      {"prefetchu", &Lowering::lower_hint},
      {"applypriority", &Lowering::lower_hint},
      {"discard", &Lowering::lower_hint},
      {"createpolicy", &Lowering::lower_createpolicy},
      {"mbarrier", &Lowering::lower_mbarrier},
      {"ldmatrix", &Lowering::lower_ldmatrix},
      {"stmatrix", &Lowering::lower_stmatrix},
      {"wmma", &Lowering::lower_wmma},
      {"vadd", &Lowering::lower_video},
      {"vadd2", &Lowering::lower_video},
      {"vadd4", &Lowering::lower_video},
      {"vsub", &Lowering::lower_video},
      {"vsub2", &Lowering::lower_video},
      {"vsub4", &Lowering::lower_video},
      {"vabsdiff", &Lowering::lower_video},
      {"vabsdiff2", &Lowering::lower_video},
      {"vabsdiff4", &Lowering::lower_video},
      {"vmin", &Lowering::lower_video},
      {"vmin2", &Lowering::lower_video},
      {"vmin4", &Lowering::lower_video},
      {"vmax", &Lowering::lower_video},
      {"vmax2", &Lowering::lower_video},
      {"vmax4", &Lowering::lower_video},
      {"vset", &Lowering::lower_video},
      {"vset2", &Lowering::lower_video},
      {"vset4", &Lowering::lower_video},
      {"vshl", &Lowering::lower_video},
      {"vshr", &Lowering::lower_video},
      {"vmad", &Lowering::lower_video},
      {"tex", &Lowering::lower_tex},
      {"suld", &Lowering::lower_surface},
      {"sust", &Lowering::lower_surface},
      {"bra", &Lowering::lower_bra},
      {"brx", &Lowering::lower_brx},
      {"call", &Lowering::lower_call},
      {"ret", &Lowering::lower_ret},
      {"bar", &Lowering::lower_bar},
      {"barrier", &Lowering::lower_bar},
  };
  return table;
}

void Lowering::fail(const std::string& message) const {
  throw CompileError(CompileStatus::syntax_error, current_ ? current_->line : syntax_.line,
                     (current_ ? "'" + std::string(current_->opcode) + "': " : std::string()) + message);
}
void Lowering::fail_opcode() const {
  throw CompileError(CompileStatus::unsupported_opcode, current_->line,
                     "opcode '" + std::string(current_->opcode) + "' is not supported");
}

const Opcode& Lowering::internal(const std::string& name) {
  const Opcode* const opcode = table_.find(name);
  if (opcode == nullptr) fail_opcode();
  return *opcode;
}

LoweredInstruction& Lowering::emit(Handler handler, std::initializer_list<Ref> defs,
                                   std::initializer_list<Ref> uses) {
  LoweredInstruction& made = lowered_.code.emplace_back();
  made.in.handler = handler;
  made.in.line = static_cast<uint32_t>(current_ ? current_->line : syntax_.line);
  made.in.source = source_;
  uint32_t next = 0;
  for (const Ref ref : defs) made.in.op[next++] = ref.bits();
  for (const Ref ref : uses) made.in.op[next++] = ref.bits();
  made.defs = static_cast<uint8_t>(defs.size());
  made.uses = static_cast<uint8_t>(uses.size());
  if (current_ != nullptr && current_->guard >= 0) {
    made.guarded = true;
    made.guard = static_cast<uint32_t>(current_->guard);
    made.guard_negated = current_->guard_negated;
  }
  return made;
}
LoweredInstruction& Lowering::emit(std::string_view name, std::initializer_list<Ref> defs,
                                   std::initializer_list<Ref> uses) {
  const Opcode& opcode = internal(std::string(name));
  LoweredInstruction& made = emit(opcode.handler, defs, uses);
  made.in.aux = opcode.aux;
  made.opcode = opcode.name;
  if (checks_.of_accesses()) check_access(name, made);
  return made;
}

// Puts the checks in front of an access to memory. It has no name any more, so that later passes leave it
// alone.
void Lowering::check_access(std::string_view name, LoweredInstruction& made) {
  const AccessKind kind = access_kind(name);
  if (!kind.known() || current_ == nullptr) return;
  made.in.op[checked_operand] = static_cast<uint32_t>(function_.checked.size());
  function_.checked.push_back({made.in.handler, kind, is_strong(current_->opcode)});
  made.in.handler = run_checked;
  made.opcode = {};
}

void Lowering::declare_variables() {
  auto add = [&](std::string_view name, uint32_t scope, Variable variable) {
    variables_[name].emplace_back(scope, variable);
  };
  uint32_t local = signature_.bytes;
  if (syntax_.is_entry) {
    for (size_t i = 0; i < syntax_.parameters.size(); ++i) {
      const Formal& formal = signature_.parameters[i];
      add(syntax_.parameters[i].name, 0,
          Variable{Variable::Kind::kernel_parameter, formal.offset, formal.bytes, {}});
    }
    local = 0;  // parameters are in their own buffer
  } else {
    auto add_formals = [&](const std::vector<ptx::Variable>& formals, const std::vector<Formal>& places) {
      for (size_t i = 0; i < formals.size(); ++i) {
        add(formals[i].name, 0, Variable{Variable::Kind::local, places[i].offset, places[i].bytes, {}});
      }
    };
    add_formals(syntax_.returns, signature_.returns);
    add_formals(syntax_.parameters, signature_.parameters);
  }
  for (size_t i = 0; i < syntax_.variables.size(); ++i) {
    const ptx::Variable& variable = syntax_.variables[i];
    const uint32_t scope = syntax_.variable_scope[i];
    if (variable.space == ptx::Space::local || variable.space == ptx::Space::param) {
      const uint32_t offset = layout_variable(variable, local);
      add(variable.name, scope,
          Variable{Variable::Kind::local, offset, static_cast<uint32_t>(variable.bytes), {}});
    } else {
      add(variable.name, scope, Variable{Variable::Kind::symbol, 0, 0, symbols_.add_variable(variable)});
    }
  }
  function_.local_bytes = (local + 15) / 16 * 16;
  for (const auto* const variables : {&syntax_.variables, &syntax_.parameters, &syntax_.returns}) {
    for (const ptx::Variable& variable : *variables) {
      const bool is_local = variable.space == ptx::Space::local || variable.space == ptx::Space::param;
      if (is_local && !(syntax_.is_entry && variables == &syntax_.parameters))
        function_.local_alignment =
            std::max(function_.local_alignment, static_cast<uint32_t>(variable.alignment));
    }
  }
}

void Lowering::run() {
  lowered_.registers.reserve(syntax_.registers.size() + 64);
  for (const ptx::Register& reg : syntax_.registers) {
    if (reg.type.kind == ptx::Kind::predicate) {
      lowered_.registers.push_back('p');
    } else {
      const uint32_t bytes = reg.type.bytes;
      lowered_.registers.push_back(bytes <= 2 ? 'h' : bytes == 4 ? 'w' : bytes == 8 ? 'x' : 'q');
    }
  }
  declare_variables();
  std::vector<uint32_t> position(syntax_.instructions.size() + 1);
  for (size_t i = 0; i < syntax_.instructions.size(); ++i) {
    position[i] = static_cast<uint32_t>(lowered_.code.size());
    current_ = &syntax_.instructions[i];
    lower(*current_);
  }
  position.back() = static_cast<uint32_t>(lowered_.code.size());
  current_ = nullptr;
  // Control must not run off the end.
  emit("@ret", {}, {}).flow = Flow::end;
  for (const ptx::Label& label : syntax_.labels) lowered_.label_target.push_back(position[label.instruction]);
  // An access under checks has its own use for the operand in which others share what they know of addresses.
  for (LoweredInstruction& instruction : lowered_.code) {
    if (instruction.in.handler == run_checked) instruction.address = -1;
  }
  if (syntax_.is_entry) {
    KnownParameters(lowered_, signature_.bytes, [this](const Constant& value) {
      return constant(value);
    }).replace_reads();
  }
  propagate_copies(lowered_);
  check_sizes();
  if (function_.is_entry) {
    function_.lowered = std::make_shared<const LoweredFunction>(lowered_);
    function_.reached = std::make_shared<ReachedMarks>(lowered_.code.size());
  }
  allocate_registers(lowered_, function_);
}

// Both tiers count a warp's registers in 32 bits, and an instruction's list in 16.
void Lowering::check_sizes() const {
  constexpr std::uint64_t most_bytes = 256 << 20;
  std::uint64_t bytes = 0;
  for (const char size : lowered_.registers) bytes += size == 'p' ? 4 : 32 * std::uint64_t{lane_bytes(size)};
  for (const Constant& constant : lowered_.constants) bytes += 32 * std::uint64_t{constant.lane_bytes};
  if (bytes > most_bytes)
    fail("function " + std::string(syntax_.name) + " has too many registers and constants");
  for (const LoweredInstruction& instruction : lowered_.code) {
    if (instruction.list.size() > UINT16_MAX)
      fail("function " + std::string(syntax_.name) + " has a table of more than 65535 labels");
  }
}

void Lowering::lower(const ptx::Instruction& instruction) {
  const std::string_view name = instruction.opcode;
  const std::string_view base = name.substr(0, name.find('.'));
  const auto found = irregular().find(base);
  if (found != irregular().end()) {
    Suffixes suffixes;
    for (std::string_view rest = name.substr(base.size()); !rest.empty();) {
      rest.remove_prefix(1);
      const size_t dot = rest.find('.');
      suffixes.push_back(rest.substr(0, dot));
      rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot);
    }
    return (this->*found->second)(instruction, suffixes);
  }
  std::string_view known = name;
  const Opcode* const opcode = name.starts_with('@') ? nullptr : find_in_any_order(known);
  if (opcode == nullptr) fail_opcode();
  const bool extremum = (base == "min" || base == "max") && name.ends_with(".f32");
  if (extremum && instruction.operands.size() == 4) return lower_extremum_of_three(instruction, known);
  if (known == "cvta.param.u64" && syntax_.is_entry) return lower_parameter_to_generic(instruction);
  lower_regular(instruction, *opcode, name);
  if (is_copying(known)) lowered_.code.back().is_copy = true;
  if (base == "exit" || base == "trap") lowered_.code.back().flow = Flow::end;
}

// The address of a kernel's parameter is generic already, or one of 32 bits, extended: no generic address is
// as low as that.
void Lowering::lower_parameter_to_generic(const ptx::Instruction& instruction) {
  if (instruction.operands.size() != 2) fail("two operands expected");
  constexpr uint64_t behind_parameters = 0x10000;
  const Ref d = destination(instruction.operands[0], 'x');
  const Ref address = source(instruction.operands[1], 'x');
  const Ref offset = temporary('w'), counts = temporary('p');
  emit("@trunc.x.w", {offset}, {address}).guarded = false;
  const Ref generic = generic_parameter_address(offset);
  emit("setp.lt.u64", {counts, temporary('p')}, {address, immediate(behind_parameters, 'x')}).guarded = false;
  emit("selp.b64", {d}, {generic, address, counts});
}

// `max.f32 d, a, b, c` is two steps.
void Lowering::lower_extremum_of_three(const ptx::Instruction& instruction, std::string_view step) {
  if (step.find(".xorsign") != std::string_view::npos) fail("too many operands");
  const std::vector<ptx::Operand>& operands = instruction.operands;
  const Ref d = destination(operands[0], 'w'), of_two = temporary('w');
  const Ref a = source(operands[1], 'w'), b = source(operands[2], 'w'), c = source(operands[3], 'w');
  emit(step, {of_two}, {a, b});
  emit(step, {d}, {of_two, c});
}

void Lowering::lower_regular(const ptx::Instruction& instruction, const Opcode& opcode, std::string_view) {
  std::vector<Ref> defs, uses;
  std::vector<uint32_t> list;
  uint32_t list_defs = 0;
  int64_t immediate_value = 0;
  size_t next = 0;
  bool in_destinations = true;
  const std::vector<ptx::Operand>& operands = instruction.operands;
  auto take = [&]() -> const ptx::Operand& {
    if (next >= operands.size()) fail("too few operands");
    return operands[next++];
  };
  for (const char* s = opcode.signature; *s != '\0'; ++s) {
    if (*s == '=') {
      in_destinations = false;
    } else if (*s == '{') {
      const char size = s[1];
      const size_t count = static_cast<size_t>(s[2] - '0');
      const ptx::Operand& operand = take();
      const bool is_vector = operand.kind == ptx::OperandKind::vector;
      if (is_vector ? operand.elements.size() != count : count != 1) {
        fail("vector of " + std::to_string(count) + " operands expected");
      }
      for (size_t k = 0; k < count; ++k) {
        const ptx::Operand& element = is_vector ? operand.elements[k] : operand;
        list.push_back((in_destinations ? destination(element, size) : source(element, size)).bits());
        if (in_destinations) ++list_defs;
      }
      s += 3;
    } else if (*s == 'c') {
      (in_destinations ? defs : uses).push_back(carry_flag());
    } else if (*s == '#') {
      const ptx::Operand& operand = take();
      if (operand.kind != ptx::OperandKind::integer) fail("constant expected");
      immediate_value = static_cast<int64_t>(operand.bits);
    } else if (in_destinations) {
      const ptx::Operand& operand = take();
      if (s[1] == ':') {
        const bool pair = operand.kind == ptx::OperandKind::pair;
        defs.push_back(destination(pair ? operand.elements[0] : operand, *s));
        defs.push_back(pair ? destination(operand.elements[1], s[2]) : temporary(s[2]));
        s += 2;
      } else {
        defs.push_back(destination(operand, *s));
      }
    } else {
      const char size = *s;
      const bool optional = s[1] == '?';
      if (optional) ++s;
      if (optional && next >= operands.size()) {
        uses.push_back(immediate(0, size));
      } else {
        uses.push_back(source(take(), size));
      }
    }
  }
  if (next != operands.size()) fail("too many operands");
  if (defs.size() + uses.size() > std::size(Instruction{}.op)) fail("too many operands");
  LoweredInstruction& emitted = emit(opcode.handler, {}, {});
  uint32_t k = 0;
  for (const Ref ref : defs) emitted.in.op[k++] = ref.bits();
  for (const Ref ref : uses) emitted.in.op[k++] = ref.bits();
  emitted.defs = static_cast<uint8_t>(defs.size());
  emitted.uses = static_cast<uint8_t>(uses.size());
  emitted.in.aux = opcode.aux;
  emitted.opcode = opcode.name;
  emitted.in.immediate = immediate_value;
  emitted.list = std::move(list);
  emitted.list_defs = list_defs;
}

}  // namespace softgpu
