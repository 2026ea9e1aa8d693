// Operands: registers, immediates, special registers, names, addresses.
#include <array>
#include <bit>

#include "softgpu/exec/lower/lowering.h"
#include "softgpu/ptx/error.h"

namespace softgpu {

using ptx::Operand;
using ptx::OperandKind;

namespace {

/// Braces around a single element mean that element; Triton writes `ld.global.b32 { %r1 }, [...]`.
const Operand& only(const Operand& written) {
  return written.kind == OperandKind::vector && written.elements.size() == 1 ? written.elements[0] : written;
}

}  // namespace

Ref Lowering::temporary(char size) {
  lowered_.registers.push_back(size);
  return Ref::reg(static_cast<uint32_t>(lowered_.registers.size() - 1));
}

Ref Lowering::constant(const Constant& value) {
  const auto key = std::make_tuple(
      static_cast<int>(value.kind), static_cast<int>(value.special), static_cast<int>(value.lane_bytes),
      value.parameter_bytes * 2 + (value.sign_extends ? 1 : 0), value.symbol, value.value);
  const auto [place, fresh] =
      constant_index_.try_emplace(key, static_cast<uint32_t>(lowered_.constants.size()));
  if (fresh) lowered_.constants.push_back(value);
  return Ref::constant(place->second);
}

Ref Lowering::immediate(uint64_t value, char size) {
  Constant made;
  made.lane_bytes = static_cast<uint8_t>(lane_bytes(size));
  if (size == 'p') fail("predicate register expected");
  made.value = size == 'h' ? value & 0xffff : size == 'w' ? value & 0xffffffff : value;
  return constant(made);
}

Ref Lowering::carry_flag() {
  if (carry_.empty()) carry_.push_back(temporary('p'));
  return carry_[0];
}

char Lowering::size_of(const Operand& written, char if_none) const {
  const Operand& operand = only(written);
  return operand.kind == OperandKind::reg ? lowered_.registers[operand.reg] : if_none;
}

Ref Lowering::destination(const Operand& written, char size) {
  const Operand& operand = only(written);
  if (operand.kind == OperandKind::sink) return temporary(size);
  if (operand.kind != OperandKind::reg || operand.negated || !operand.selector.empty())
    fail("register expected as destination");
  if (lowered_.registers[operand.reg] != size) fail("destination register has the wrong size");
  return Ref::reg(operand.reg);
}

Ref Lowering::source(const Operand& written, char size) {
  const Operand& operand = only(written);
  switch (operand.kind) {
    case OperandKind::reg: {
      if (lowered_.registers[operand.reg] != size) fail("source register has the wrong size");
      if (!operand.selector.empty()) fail("only video instructions take parts of a register");
      const Ref ref = Ref::reg(operand.reg);
      if (!operand.negated) return ref;
      if (size != 'p') fail("'!' or '-' before what is no predicate");
      const Ref inverted = temporary('p');
      emit("not.pred", {inverted}, {ref}).guarded = false;
      return inverted;
    }
    case OperandKind::integer:
      if (size == 'p') {  // true or false as constants
        const Ref made = temporary('p');
        const Ref value = immediate(operand.bits != 0 ? 1 : 0, 'w');
        LoweredInstruction& compare = emit("setp.ne.u32", {made, temporary('p')}, {value, immediate(0, 'w')});
        compare.guarded = false;
        return made;
      }
      return immediate(operand.bits, size);
    case OperandKind::real32:
      if (size == 'w') return immediate(operand.bits, 'w');
      if (size == 'x') {
        const auto value = static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(operand.bits)));
        return immediate(std::bit_cast<uint64_t>(value), 'x');
      }
      fail("floating-point constant of the wrong size");
    case OperandKind::real64:
      if (size == 'x') return immediate(operand.bits, 'x');
      if (size == 'w') {
        return immediate(std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits))),
                         'w');
      }
      fail("floating-point constant of the wrong size");
    case OperandKind::name:
      return named_source(operand, size);
    case OperandKind::vector: {
      if (size != 'w' && size != 'x') break;
      const Ref made = temporary(size);
      const size_t count = operand.elements.size();
      const char element = (size == 'w' && count == 2) || (size == 'x' && count == 4) ? 'h' : 'w';
      if (count != lane_bytes(size) / lane_bytes(element)) fail("vector of the wrong size");
      std::vector<uint32_t> list;
      for (const Operand& part : operand.elements) list.push_back(source(part, element).bits());
      LoweredInstruction& pack = emit(std::string("@pack.") + element + "." + size, {made}, {});
      pack.guarded = false;
      pack.list = std::move(list);
      return made;
    }
    default:
      break;
  }
  fail("operand of the wrong kind");
}

bool Lowering::special_source(std::string_view name, char size, Ref& result) {
  struct Fixed {
    std::string_view name;
    SpecialRegister which;
  };
  using S = SpecialRegister;
  static constexpr std::array fixed_registers{
      Fixed{"%tid.x", S::tid_x}, Fixed{"%tid.y", S::tid_y}, Fixed{"%tid.z", S::tid_z},
      Fixed{"%ntid.x", S::ntid_x}, Fixed{"%ntid.y", S::ntid_y}, Fixed{"%ntid.z", S::ntid_z},
      Fixed{"%ctaid.x", S::ctaid_x}, Fixed{"%ctaid.y", S::ctaid_y}, Fixed{"%ctaid.z", S::ctaid_z},
      Fixed{"%nctaid.x", S::nctaid_x}, Fixed{"%nctaid.y", S::nctaid_y}, Fixed{"%nctaid.z", S::nctaid_z},
      Fixed{"%laneid", S::laneid}, Fixed{"%warpid", S::warpid}, Fixed{"%nwarpid", S::nwarpid},
      Fixed{"%lanemask_eq", S::lanemask_eq}, Fixed{"%lanemask_le", S::lanemask_le},
      Fixed{"%lanemask_lt", S::lanemask_lt}, Fixed{"%lanemask_ge", S::lanemask_ge},
      Fixed{"%lanemask_gt", S::lanemask_gt}, Fixed{"%smid", S::smid}, Fixed{"%nsmid", S::nsmid},
      Fixed{"%gridid", S::gridid}, Fixed{"%envreg1", S::workspace_high}, Fixed{"%envreg2", S::workspace_low},
      Fixed{"%dynamic_smem_size", S::dynamic_smem_size}, Fixed{"%total_smem_size", S::total_smem_size},
      Fixed{"%aggr_smem_size", S::total_smem_size},
      // One block is one cluster.
      Fixed{"%clusterid.x", S::ctaid_x}, Fixed{"%clusterid.y", S::ctaid_y}, Fixed{"%clusterid.z", S::ctaid_z},
      Fixed{"%nclusterid.x", S::nctaid_x}, Fixed{"%nclusterid.y", S::nctaid_y},
      Fixed{"%nclusterid.z", S::nctaid_z}, Fixed{"%cluster_ctaid.x", S::zero},
      Fixed{"%cluster_ctaid.y", S::zero}, Fixed{"%cluster_ctaid.z", S::zero},
      Fixed{"%cluster_nctaid.x", S::one}, Fixed{"%cluster_nctaid.y", S::one},
      Fixed{"%cluster_nctaid.z", S::one}, Fixed{"%cluster_ctarank", S::zero},
      Fixed{"%cluster_nctarank", S::one}, Fixed{"%current_graph_exec", S::zero},
      Fixed{"%reserved_smem_offset_begin", S::zero}, Fixed{"%reserved_smem_offset_end", S::zero},
      Fixed{"%reserved_smem_offset_cap", S::zero}};
  static constexpr std::array<std::pair<std::string_view, char>, 6> changing_registers{
      {{"%clock64", 'x'},
       {"%clock", 'w'},
       {"%clock_hi", 'w'},
       {"%globaltimer", 'x'},
       {"%globaltimer_lo", 'w'},
       {"%globaltimer_hi", 'w'}}};
  for (const auto& [changing, natural] : changing_registers) {
    if (name != changing) continue;
    if (size != natural) fail("special register has another size");
    result = temporary(size);
    emit("@" + std::string(name.substr(1)), {result}, {}).guarded = false;
    return true;
  }
  Constant made;
  made.kind = Constant::Kind::special;
  made.lane_bytes = static_cast<uint8_t>(lane_bytes(size));
  for (const Fixed& fixed : fixed_registers) {
    if (name != fixed.name) continue;
    if (size == 'p' || size == 'q') fail("special register has another size");
    made.special = fixed.which;
    if (fixed.which == S::dynamic_smem_size) uses_dynamic_shared = true;
    result = constant(made);
    return true;
  }
  if (name.starts_with("%envreg") || name.starts_with("%pm")) {
    result = immediate(0, size);
    return true;
  }
  if (name == "%is_explicit_cluster") {
    Operand zero;
    zero.kind = OperandKind::integer;
    result = source(zero, 'p');
    return true;
  }
  return false;
}

const Lowering::Variable* Lowering::find_variable(std::string_view name, uint32_t scope) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return nullptr;
  for (;;) {
    // The newest declaration of the innermost scope that has one.
    for (auto it = found->second.rbegin(); it != found->second.rend(); ++it) {
      if (it->first == scope) return &it->second;
    }
    if (scope == 0) return nullptr;
    scope = syntax_.scope_parent[scope];
  }
}

uint32_t Lowering::find_label(std::string_view name, uint32_t scope) const {
  for (;;) {
    for (uint32_t i = 0; i < syntax_.labels.size(); ++i) {
      if (syntax_.labels[i].scope == scope && syntax_.labels[i].name == name) return i;
    }
    if (scope == 0) break;
    scope = syntax_.scope_parent[scope];
  }
  fail("label '" + std::string(name) + "' does not exist");
}

namespace {

template <class Declared>
const Declared* find_declared(const std::vector<Declared>& all, const std::vector<uint32_t>& scope_parent,
                              std::string_view name, uint32_t scope) {
  for (;;) {
    for (const Declared& one : all) {
      if (one.scope == scope && one.name == name) return &one;
    }
    if (scope == 0) return nullptr;
    scope = scope_parent[scope];
  }
}

}  // namespace

const ptx::BranchTable* Lowering::find_branch_table(std::string_view name, uint32_t scope) const {
  return find_declared(syntax_.branch_tables, syntax_.scope_parent, name, scope);
}

const ptx::CallPrototype* Lowering::find_prototype(std::string_view name, uint32_t scope) const {
  return find_declared(syntax_.prototypes, syntax_.scope_parent, name, scope);
}

Ref Lowering::symbol_address(const Symbol& symbol, int64_t offset, char size) {
  Constant made;
  made.lane_bytes = static_cast<uint8_t>(lane_bytes(size));
  made.value = static_cast<uint64_t>(offset);
  made.symbol = symbol.index;
  switch (symbol.kind) {
    case Symbol::Kind::global:
      if (size != 'x') fail("addresses of global variables have 64 bits");
      made.kind = Constant::Kind::global;
      break;
    case Symbol::Kind::shared:
      used_shared.push_back(symbol.index);
      made.kind = Constant::Kind::shared;
      break;
    case Symbol::Kind::dynamic_shared:
      uses_dynamic_shared = true;
      used_shared.push_back(symbol.index);  // for its alignment
      made.kind = Constant::Kind::dynamic_shared;
      made.symbol = 0;
      break;
    case Symbol::Kind::function:
      address_taken.push_back(symbol.index);
      made.value += function_address_tag | symbol.index;
      made.symbol = 0;
      break;
    case Symbol::Kind::builtin:
      fail("the address of a built-in function cannot be taken");
  }
  return constant(made);
}

Ref Lowering::named_source(const Operand& operand, char size) {
  if (operand.text.starts_with('%')) {
    Ref result = Ref::reg(0);
    if (special_source(operand.text, size, result)) return result;
  }
  if (size != 'x' && size != 'w') fail("an address does not fit");
  if (const Variable* const variable = find_variable(operand.text, operand.scope)) {
    if (variable->kind == Variable::Kind::symbol)
      return symbol_address(variable->symbol, operand.offset, size);
    const bool is_local = [&] {
      for (const ptx::Variable& declared : syntax_.variables) {
        if (declared.name == operand.text && declared.space == ptx::Space::local) return true;
      }
      return false;
    }();
    const bool is_argument = variable->kind == Variable::Kind::kernel_parameter;
    const int64_t offset = variable->offset + operand.offset;
    // A .param variable has a generic address of 64 bits, or one of 32 bits that counts from the first
    // parameter: LLVM 24 chooses among parameters so. .local variables give the offset that cvta.local
    // expects.
    if (size == 'w' && !is_local) {
      if (is_argument) return immediate(static_cast<uint64_t>(offset), 'w');
      if (syntax_.is_entry) fail("the 32-bit address of a call's parameter is not supported");
    }
    const bool counts = is_local || size == 'w';
    const Ref made = temporary('x');
    LoweredInstruction& compute = emit(is_argument ? "@parameter_address"
                                       : counts    ? "@local_address"
                                                   : "@local_generic_address",
                                       {made}, {});
    compute.guarded = false;
    compute.in.immediate = offset;
    if (size == 'x') return made;
    const Ref narrow = temporary('w');
    emit("@trunc.x.w", {narrow}, {made}).guarded = false;
    return narrow;
  }
  return symbol_address(symbols_.resolve(operand.text, current_->line), operand.offset, size);
}

Ref Lowering::generic_parameter_address(Ref offset) {
  const Ref wide = temporary('x'), first = temporary('x'), sum = temporary('x');
  emit("@zext.w.x", {wide}, {offset}).guarded = false;
  emit("@parameter_address", {first}, {}).guarded = false;
  emit("add.u64", {sum}, {first, wide}).guarded = false;
  return sum;
}

Lowering::Address Lowering::address(const Operand& operand, ptx::Space space) {
  if (operand.kind != OperandKind::address) fail("address expected");
  if (operand.elements.size() != 1) fail("coordinates belong to textures and surfaces");
  const Operand& base = operand.elements[0];
  Address made{Ref::reg(0), operand.offset, memory_operand::flat, false};
  if (space == ptx::Space::shared) made.how = memory_operand::shared;
  if (space == ptx::Space::local) made.how = memory_operand::local;
  const Ref nothing = immediate(0, 'x');
  made.base = nothing;
  switch (base.kind) {
    case OperandKind::reg: {
      const char size = lowered_.registers[base.reg];
      if (size == 'w' && space == ptx::Space::param && syntax_.is_entry) {
        made.base = generic_parameter_address(Ref::reg(base.reg));
        return made;
      }
      if (size == 'w') {
        if (space == ptx::Space::param)
          made.how = memory_operand::local;  // a function's parameters lie there
        made.how |= memory_operand::address32;
      } else if (size != 'x') {
        fail("an address register has 32 or 64 bits");
      }
      made.base = Ref::reg(base.reg);
      return made;
    }
    case OperandKind::integer:
      made.how |= memory_operand::no_base;
      made.offset += static_cast<int64_t>(base.bits);
      return made;
    case OperandKind::name: {
      if (const Variable* const variable = find_variable(base.text, base.scope)) {
        if (variable->kind == Variable::Kind::symbol) {
          if (variable->symbol.kind == Symbol::Kind::shared ||
              variable->symbol.kind == Symbol::Kind::dynamic_shared) {
            made.how = memory_operand::shared;
          }
          made.base = symbol_address(variable->symbol, made.offset, 'x');
          made.offset = 0;
          return made;
        }
        made.offset += variable->offset;
        if (variable->kind == Variable::Kind::kernel_parameter) {
          made.kernel_parameter = true;
        } else {
          made.how = memory_operand::local | memory_operand::no_base;
        }
        return made;
      }
      if (base.text.starts_with('%')) fail("register '" + std::string(base.text) + "' is not declared");
      const Symbol symbol = symbols_.resolve(base.text, current_->line);
      if (symbol.kind == Symbol::Kind::shared || symbol.kind == Symbol::Kind::dynamic_shared) {
        made.how = memory_operand::shared;
      } else if (symbol.kind != Symbol::Kind::global) {
        fail("'" + std::string(base.text) + "' is no variable");
      }
      made.base = symbol_address(symbol, made.offset, 'x');
      made.offset = 0;
      return made;
    }
    default:
      fail("address expected");
  }
}

Ref Lowering::plain_address(const Operand& operand, ptx::Space space, uint32_t& how) {
  const Address made = address(operand, space);
  if (made.kernel_parameter || (made.how & memory_operand::no_base)) fail("address in a register expected");
  how = made.how;
  if (made.offset == 0) return made.base;
  const bool narrow = made.how & memory_operand::address32;
  const char size = narrow ? 'w' : 'x';
  const Ref sum = temporary(size);
  emit(narrow ? "add.u32" : "add.u64", {sum},
       {made.base, immediate(static_cast<uint64_t>(made.offset), size)})
      .guarded = false;
  return sum;
}

}  // namespace softgpu
