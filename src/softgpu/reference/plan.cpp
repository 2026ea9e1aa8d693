// What is known of a module before it runs: where its variables lie and which opcode each instruction is.
#include <algorithm>

#include "softgpu/reference/machine.h"
#include "softgpu/reference/matrix_form.h"

namespace softgpu::reference {

using ptx::Space;

namespace {

uint64_t aligned(uint64_t offset, uint64_t alignment) {
  alignment = std::max<uint64_t>(alignment, 1);
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace

Machine::Machine(const ptx::Module& module, std::span<std::byte> arena) : arena_(arena) {
  for (const ptx::Variable& variable : module.variables) {
    if (variable.space == Space::shared) {
      if (variable.unsized) {  // behind what is declared with a size
        variables_[variable.name] = Variable{Space::shared, ~uint64_t{0}, 0};
        continue;
      }
      const uint64_t offset = aligned(static_shared_bytes_, variable.alignment);
      variables_[variable.name] = Variable{Space::shared, offset, variable.bytes};
      static_shared_bytes_ = offset + variable.bytes;
    } else {
      place_variable(variable, global_variables_, variable.space);
    }
  }
  static_shared_bytes_ = aligned(static_shared_bytes_, 16);
  for (auto& [name, variable] : variables_) {
    if (variable.offset == ~uint64_t{0}) variable.offset = static_shared_bytes_;
  }
  for (const ptx::Function& function : module.functions) {
    if (!function.has_body) continue;
    function_by_name_[function.name] = static_cast<uint32_t>(functions_.size());
    functions_.push_back(FunctionPlan{&function, {}, {}, {}, {}, 0});
  }
  for (FunctionPlan& plan : functions_) {
    declare_variables(plan);
    for (const ptx::Instruction& instruction : plan.syntax->instructions) plan_instruction(plan, instruction);
  }
}

void Machine::place_variable(const ptx::Variable& variable, Memory& memory, Space space) {
  const uint64_t offset = aligned(memory.bytes.size(), variable.alignment);
  memory.resize(offset + variable.bytes);
  std::fill_n(memory.written.begin() + static_cast<ptrdiff_t>(offset), variable.bytes, true);
  for (const ptx::InitialValue& value : variable.initial) {
    if (value.kind != ptx::OperandKind::integer) throw Undefined("initialiser is no integer");
    for (uint32_t b = 0; b < variable.type.bytes; ++b) {
      memory.bytes[offset + value.place * variable.type.bytes + b] =
          static_cast<std::byte>(b < 8 ? value.bits >> (8 * b) : 0);
    }
  }
  variables_[variable.name] = Variable{space, offset, variable.bytes};
}

void Machine::declare_variables(FunctionPlan& plan) {
  const ptx::Function& function = *plan.syntax;
  uint64_t formal = 0;
  const auto declare_formals = [&](const std::vector<ptx::Variable>& variables, std::vector<Variable>& into) {
    for (const ptx::Variable& variable : variables) {
      formal = aligned(formal, variable.alignment);
      into.push_back(Variable{Space::param, formal, variable.bytes});
      plan.variables[variable.name].emplace_back(0, into.back());
      formal += variable.bytes;
    }
  };
  declare_formals(function.returns, plan.returns);
  declare_formals(function.parameters, plan.parameters);
  plan.frame_bytes = function.is_entry ? 0 : formal;
  for (size_t i = 0; i < function.variables.size(); ++i) {
    const ptx::Variable& variable = function.variables[i];
    if (variable.space != Space::local && variable.space != Space::param) {
      throw Undefined("variables of functions are .local or .param here");
    }
    plan.frame_bytes = aligned(plan.frame_bytes, variable.alignment);
    // Space::generic marks a .param variable of the frame in an entry, whose formal ones lie elsewhere.
    const Space space = variable.space == Space::local ? Space::local : Space::generic;
    plan.variables[variable.name].emplace_back(function.variable_scope[i],
                                               Variable{space, plan.frame_bytes, variable.bytes});
    plan.frame_bytes += variable.bytes;
  }
  plan.frame_bytes = aligned(plan.frame_bytes, 16);
}

uint32_t Machine::target_of(const FunctionPlan& plan, std::string_view label, uint32_t scope) const {
  for (;;) {
    for (const ptx::Label& known : plan.syntax->labels) {
      if (known.scope == scope && known.name == label) return known.instruction;
    }
    if (scope == 0) throw Undefined("no label '" + std::string(label) + "'");
    scope = plan.syntax->scope_parent[scope];
  }
}

void Machine::plan_instruction(FunctionPlan& plan, const ptx::Instruction& instruction) {
  Step step;
  step.syntax = &instruction;
  const std::string_view name = instruction.opcode, base = name.substr(0, name.find('.'));
  for (std::string_view rest = name.substr(base.size()); !rest.empty();) {
    rest.remove_prefix(1);
    step.suffixes.push_back(rest.substr(0, rest.find('.')));
    rest.remove_prefix(step.suffixes.back().size());
  }
  using Execute = void (Machine::*)(Thread&, const Step&);
  static const std::unordered_map<std::string_view, Execute> irregular_operations{
      {"mov", &Machine::do_mov},
      {"ld", &Machine::do_load},
      {"ldu", &Machine::do_load},
      {"st", &Machine::do_store},
      {"atom", &Machine::do_atomic},
      {"red", &Machine::do_atomic},
      {"cp", &Machine::do_copy_async},
      {"cvta", &Machine::do_convert_address},
      {"isspacep", &Machine::do_is_in_space},
      {"bra", &Machine::do_branch},
      {"brx", &Machine::do_indexed_branch},
      {"call", &Machine::do_call},
      {"ret", &Machine::do_return},
      {"exit", &Machine::do_exit},
      {"bar", &Machine::do_barrier},
      {"barrier", &Machine::do_barrier},
      {"shfl", &Machine::do_with_warp},
      {"vote", &Machine::do_with_warp},
      {"match", &Machine::do_with_warp},
      {"redux", &Machine::do_with_warp},
      {"elect", &Machine::do_with_warp},
      {"movmatrix", &Machine::do_with_whole_warp},
      {"ldmatrix", &Machine::do_with_whole_warp},
      {"stmatrix", &Machine::do_with_whole_warp},
      {"activemask", &Machine::do_active_mask},
      {"pmevent", &Machine::do_nothing},
      {"griddepcontrol", &Machine::do_nothing},
      {"membar", &Machine::do_nothing},
      {"fence", &Machine::do_nothing},
      {"nanosleep", &Machine::do_nothing},
      {"prefetch", &Machine::do_nothing},
  };
  const auto known = irregular_operations.find(base);
  if (name == "bar.warp.sync") {
    step.execute = &Machine::do_with_warp;
  } else if (base == "mma" && matrix_form(name)) {
    step.execute = &Machine::do_with_whole_warp;
  } else if (known != irregular_operations.end()) {
    step.execute = known->second;
  } else {
    step.operation = find_operation(name);
    if (step.operation == nullptr) refuse(step, "this opcode is not in the reference");
    step.execute = &Machine::compute;
    if (base == "cvt" && step.suffixes.size() >= 2) {
      step.extends_sign = step.suffixes[step.suffixes.size() - 2].starts_with('s');
    }
  }
  if (base == "ld" || base == "ldu" || base == "st") step.access = access_of(step);
  if (base == "bra") {
    step.targets = {target_of(plan, instruction.operands.at(0).text, instruction.operands[0].scope)};
  }
  if (base == "brx") {
    const ptx::Operand& table_name = instruction.operands.at(1);
    for (const ptx::BranchTable& table : plan.syntax->branch_tables) {
      if (table.name != table_name.text) continue;
      for (const std::string_view label : table.targets) {
        step.targets.push_back(target_of(plan, label, table.scope));
      }
    }
  }
  plan.steps.push_back(std::move(step));
}

}  // namespace softgpu::reference
