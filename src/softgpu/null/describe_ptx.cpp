#include "softgpu/null/describe_ptx.h"

#include <algorithm>
#include <unordered_set>

#include "softgpu/null/program_parts.h"
#include "softgpu/ptx/error.h"
#include "softgpu/ptx/parser.h"

namespace nulldriver {
namespace {

namespace ptx = softgpu::ptx;

constexpr std::uint64_t max_parameter_bytes = 32764;
constexpr std::uint64_t max_variable_bytes = std::uint64_t{1} << 40;
constexpr std::uint64_t max_initial_bytes = std::uint64_t{1} << 30;
constexpr std::uint32_t nominal_registers = 32;  // per thread; nobody allocates any

std::uint64_t aligned(std::uint64_t offset, const ptx::Variable& variable) {
  const std::uint64_t alignment = std::max<std::uint64_t>(variable.alignment, 1);
  return (offset + alignment - 1) / alignment * alignment;
}

void collect_names(const ptx::Operand& operand, std::unordered_set<std::string_view>& names) {
  if (!operand.text.empty()) names.insert(operand.text);
  for (const ptx::Operand& element : operand.elements) collect_names(element, names);
}

// Static shared memory: the variables of the body, and those of the module that the body mentions.
std::uint64_t shared_bytes(const ptx::Module& module, const ptx::Function& function) {
  std::unordered_set<std::string_view> names;
  for (const ptx::Instruction& instruction : function.instructions) {
    for (const ptx::Operand& operand : instruction.operands) collect_names(operand, names);
  }
  std::uint64_t bytes = 0;
  const auto add = [&](const ptx::Variable& variable) {
    if (variable.space == ptx::Space::shared && !variable.unsized && names.contains(variable.name)) {
      bytes = aligned(bytes, variable) + variable.bytes;
    }
  };
  for (const ptx::Variable& variable : function.variables) add(variable);
  for (const ptx::Variable& variable : module.variables) add(variable);
  return bytes;
}

void describe_kernel(const ptx::Module& module, const ptx::Function& function,
                     softgpu::ProgramParts& program) {
  softgpu::KernelInfo info;
  info.name = function.name;
  std::uint64_t end = 0;
  for (const ptx::Variable& parameter : function.parameters) {
    const std::uint64_t offset = aligned(end, parameter);
    end = offset + parameter.bytes;
    if (end > max_parameter_bytes) {
      softgpu::syntax_error(function.line, "more than 32764 bytes of kernel parameters");
    }
    info.parameters.push_back({offset, parameter.bytes});
  }
  info.parameter_bytes = end;
  info.static_shared_bytes = shared_bytes(module, function);
  info.registers = nominal_registers;
  info.required_block = function.required_block;
  info.max_threads_per_block = block_limit(function.max_block, function.required_block);
  add_kernel(program, std::move(info));
}

/// `initial_bytes`: of all variables so far.
void describe_variable(const ptx::Variable& variable, softgpu::ProgramParts& program,
                       std::uint64_t& initial_bytes) {
  const bool is_constant = variable.space == ptx::Space::constant;
  if ((variable.space != ptx::Space::global && !is_constant) || variable.linkage == ptx::Linkage::external)
    return;
  if (variable.bytes > max_variable_bytes) softgpu::syntax_error(variable.line, "the variable is too large");
  softgpu::GlobalVariable global;
  global.info = {std::string(variable.name), variable.bytes, std::max<std::uint64_t>(variable.alignment, 1),
                 is_constant};
  for (const ptx::InitialValue& value : variable.initial) {
    if (value.place > max_initial_bytes / variable.type.bytes ||
        initial_bytes + value.place * variable.type.bytes > max_initial_bytes)
      softgpu::syntax_error(variable.line, "the variables' initial values are too large");
    global.initial.resize(value.place * variable.type.bytes);
    for (std::uint32_t n = 0; n < variable.type.bytes; ++n) {
      // Addresses stay zero: nothing follows them.
      const bool number = value.kind != ptx::OperandKind::name && n < sizeof value.bits;
      global.initial.push_back(static_cast<std::byte>(number ? value.bits >> (8 * n) : 0));
    }
  }
  global.initial.resize(std::min<std::size_t>(global.initial.size(), variable.bytes));
  initial_bytes += global.initial.size();
  add_global(program, std::move(global));
}

}  // namespace

PtxHeader describe_ptx(std::string_view text, softgpu::ProgramParts& program) {
  const ptx::Module module = ptx::parse(text);
  std::uint64_t initial_bytes = 0;
  for (const ptx::Function& function : module.functions) {
    if (function.is_entry && function.has_body) describe_kernel(module, function, program);
    for (const ptx::Variable& variable : function.variables)
      describe_variable(variable, program, initial_bytes);
  }
  for (const ptx::Variable& variable : module.variables) describe_variable(variable, program, initial_bytes);
  return {module.version, module.target};
}

}  // namespace nulldriver
