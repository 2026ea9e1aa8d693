// Operands, and instructions that only compute.
#include <bit>

#include "softgpu/reference/machine.h"

namespace softgpu::reference {

using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;

namespace {

const Operand& only(const Operand& written) {  // { %r1 } means %r1
  return written.kind == OperandKind::vector && written.elements.size() == 1 ? written.elements[0] : written;
}

}  // namespace

int Machine::width(const Thread& thread, const Operand& written, int otherwise) const {
  const Operand& operand = only(written);
  if (operand.kind != OperandKind::reg) return otherwise;
  const ptx::Type& type = thread.frames.back().plan->syntax->registers[operand.reg].type;
  return type.kind == ptx::Kind::predicate ? 1 : static_cast<int>(8 * type.bytes);
}

Bits Machine::value(const Thread& thread, const Operand& written, int bits) const {
  const Operand& operand = only(written);
  const Frame& frame = thread.frames.back();
  switch (operand.kind) {
    case OperandKind::reg: {
      if (!frame.written[operand.reg]) {
        throw Undefined("a register is read that was never written, before line " +
                        std::to_string(frame.plan->steps[frame.next - 1].syntax->line));
      }
      const Bits held = frame.registers[operand.reg];
      return operand.negated ? Bits{held == 0} : low_bits(held, bits);
    }
    case OperandKind::integer:
      return bits == 1 ? Bits{operand.bits != 0} : low_bits(operand.bits, bits);
    case OperandKind::real32:
      if (bits == 64) {
        const auto single = std::bit_cast<float>(static_cast<uint32_t>(operand.bits));
        return std::bit_cast<uint64_t>(static_cast<double>(single));
      }
      return operand.bits;
    case OperandKind::real64:
      if (bits == 32) {
        return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits)));
      }
      return operand.bits;
    case OperandKind::name:
      return low_bits(named_value(thread, operand), bits);
    default:
      throw Undefined("operand of an unknown kind");
  }
}

void Machine::set(Thread& thread, const Operand& written, Bits value) const {
  const Operand& operand = only(written);
  if (operand.kind == OperandKind::sink) return;
  if (operand.kind != OperandKind::reg) throw Undefined("register expected");
  Frame& frame = thread.frames.back();
  frame.registers[operand.reg] = low_bits(value, width(thread, operand, 128));
  frame.written[operand.reg] = true;
}

const Variable* Machine::find_variable(const FunctionPlan& plan, std::string_view name,
                                       uint32_t scope) const {
  const auto found = plan.variables.find(name);
  if (found == plan.variables.end()) return nullptr;
  for (;;) {
    for (const auto& [where, variable] : found->second) {
      if (where == scope) return &variable;
    }
    if (scope == 0) return nullptr;
    scope = plan.syntax->scope_parent[scope];
  }
}

Bits Machine::named_value(const Thread& thread, const Operand& operand) const {
  const std::string_view name = operand.text;
  if (name.starts_with('%')) {
    const auto component = [&](std::string_view prefix, const Dim3& of) -> std::optional<Bits> {
      if (!name.starts_with(prefix) || name.size() != prefix.size() + 2) return std::nullopt;
      const char axis = name.back();
      return axis == 'x' ? of.x : axis == 'y' ? of.y : of.z;
    };
    if (const auto v = component("%tid", thread.place)) return *v;
    if (const auto v = component("%ntid", shape_.block)) return *v;
    if (const auto v = component("%ctaid", block_)) return *v;
    if (const auto v = component("%nctaid", shape_.grid)) return *v;
    const uint32_t lane = thread.index % 32;
    const uint64_t one = uint64_t{1} << lane;
    if (name == "%laneid") return lane;
    if (name == "%warpid") return thread.index / 32;
    if (name == "%nwarpid") return (threads_.size() + 31) / 32;
    if (name == "%lanemask_eq") return one;
    if (name == "%lanemask_lt") return one - 1;
    if (name == "%lanemask_le") return one | (one - 1);
    if (name == "%lanemask_ge") return low_bits(~Bits{one - 1}, 32);
    if (name == "%lanemask_gt") return low_bits(~Bits{one | (one - 1)}, 32);
    if (name == "%dynamic_smem_size") return shape_.dynamic_shared_bytes;
    throw Undefined("special register '" + std::string(name) + "' is not in the reference");
  }
  if (const Variable* const variable = find_variable(*thread.frames.back().plan, name, operand.scope)) {
    if (variable->space != Space::local) throw Undefined("address of a parameter");
    return thread.frames.back().base + variable->offset + static_cast<uint64_t>(operand.offset);
  }
  if (const auto found = variables_.find(name); found != variables_.end()) {
    const uint64_t base = found->second.space == Space::shared ? 0 : variable_window;
    return base + found->second.offset + static_cast<uint64_t>(operand.offset);
  }
  if (const auto found = function_by_name_.find(name); found != function_by_name_.end()) {
    return function_window + found->second;
  }
  throw Undefined("'" + std::string(name) + "' is not known");
}

uint64_t Machine::address(const Thread& thread, const Operand& operand, Space space) const {
  if (operand.kind != OperandKind::address || operand.elements.size() != 1)
    throw Undefined("address expected");
  const Operand& base = operand.elements[0];
  const auto offset = static_cast<uint64_t>(operand.offset);
  const Frame& frame = thread.frames.back();
  if (base.kind == OperandKind::name && !base.text.starts_with('%')) {
    if (const Variable* const variable = find_variable(*frame.plan, base.text, base.scope)) {
      const bool launch = variable->space == Space::param && frame.plan->syntax->is_entry;
      return (launch ? parameter_window : local_window + frame.base) + variable->offset + offset;
    }
    const auto found = variables_.find(base.text);
    if (found == variables_.end()) throw Undefined("'" + std::string(base.text) + "' is no variable");
    const uint64_t window = found->second.space == Space::shared ? shared_window : variable_window;
    return window + found->second.offset + offset;
  }
  const int bits = width(thread, base, 64);
  uint64_t sum = static_cast<uint64_t>(value(thread, base, bits)) + offset;
  if (bits == 32) sum = static_cast<uint32_t>(sum);
  if (space == Space::shared) return shared_window + sum;
  if (space == Space::local) return local_window + sum;
  return sum;
}

void Machine::compute(Thread& thread, const Step& step) {
  const Operation& operation = *step.operation;
  const std::vector<Operand>& operands = step.syntax->operands;
  Bits sources[6] = {}, results[3] = {};
  size_t next = 1;
  // min and max of three: of the first two, then with the third.
  const size_t given = operands.size() - 1;
  const bool three = given == 3 && operation.sources.size() == 2;
  if (given != operation.sources.size() && !three) refuse(step, "wrong number of operands");
  for (size_t i = 0; i < operation.sources.size(); ++i) {
    sources[i] = value(thread, operands[next++], operation.sources[i]);
  }
  if (operation.reads_carry) {
    if (!thread.carry_written) refuse(step, "the carry flag was never written");
    sources[operation.sources.size()] = thread.carry;
  }
  for (size_t i = 0; i < operation.nonzero.size(); ++i) {
    if (operation.nonzero[i] && sources[i] == 0) refuse(step, "division by zero");
  }
  operation.evaluate(sources, results);
  if (three) {
    sources[0] = results[0];
    sources[1] = value(thread, operands[next], operation.sources[1]);
    operation.evaluate(sources, results);
  }
  const Operand& first = operands[0];
  const bool pair = first.kind == OperandKind::pair;
  const Operand& target = pair ? first.elements[0] : first;
  if (step.extends_sign && operation.results[0] < width(thread, target, operation.results[0])) {
    const NumberType narrow{NumberType::Domain::signed_integer, operation.results[0], 1, nullptr};
    results[0] = static_cast<Bits>(integer_value(results[0], narrow));
  }
  set(thread, target, results[0]);
  if (pair) set(thread, first.elements[1], results[1]);
  if (operation.writes_carry) {
    thread.carry = results[operation.results.size()] != 0;
    thread.carry_written = true;
  }
}

void Machine::do_mov(Thread& thread, const Step& step) {
  const Operand &to = step.syntax->operands.at(0), &from = step.syntax->operands.at(1);
  const auto type = number_type(step.suffixes.at(0));
  if (!type) refuse(step, "unknown type");
  const int bits = type->register_bits();
  if (from.kind == OperandKind::vector && from.elements.size() > 1) {  // the first element is the lowest
    const int part = bits / static_cast<int>(from.elements.size());
    Bits packed = 0;
    for (size_t i = 0; i < from.elements.size(); ++i) {
      packed |= value(thread, from.elements[i], part) << (static_cast<int>(i) * part);
    }
    return set(thread, to, packed);
  }
  const Bits whole = value(thread, from, bits);
  if (to.kind != OperandKind::vector || to.elements.size() == 1) return set(thread, to, whole);
  const int part = bits / static_cast<int>(to.elements.size());
  for (size_t i = 0; i < to.elements.size(); ++i) {
    set(thread, to.elements[i], low_bits(whole >> (static_cast<int>(i) * part), part));
  }
}

}  // namespace softgpu::reference
