// Lowering: one function's syntax -> decoded instructions. Regular opcodes go by the signature in the
// opcode table; those with irregular operands (mov ld st cvt call bra bar atom ...) have their own code.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/exec/program/lowered.h"
#include "softgpu/exec/program/memory_operand.h"
#include "softgpu/exec/program/opcode_table.h"
#include "softgpu/ptx/syntax.h"

namespace softgpu {

struct Formal {  // where a function's parameter or result lies in its local memory
  uint32_t offset, bytes;
};
struct FunctionSignature {
  std::vector<Formal> returns, parameters;
  uint32_t bytes = 0;  // both together
  bool is_entry = false;
};

// What a name outside a function means.
struct Symbol {
  enum class Kind : uint8_t { function, builtin, global, shared, dynamic_shared } kind;
  uint32_t index;
};

// Offsets for variables laid out one after the other.
uint32_t layout_variable(const ptx::Variable& variable, uint32_t& bytes);
// Of a function, or of the prototype that stands for it where a pointer is called: results first, then
// parameters.
FunctionSignature layout_signature(const std::vector<ptx::Variable>& returns,
                                   const std::vector<ptx::Variable>& parameters);

// The linker's view that lowering needs.
class SymbolResolver {
 public:
  virtual ~SymbolResolver() = default;
  // Throws CompileError (unresolved_symbol) if the module does not know the name.
  [[nodiscard]] virtual Symbol resolve(std::string_view name, int line) const = 0;
  [[nodiscard]] virtual const FunctionSignature& signature(uint32_t function) const = 0;
  // For .shared, .global and .const variables that a function body declares.
  virtual Symbol add_variable(const ptx::Variable& variable) = 0;
};

class Lowering {
 public:
  Lowering(const ptx::Function& syntax, uint16_t source, const FunctionSignature& signature,
           SymbolResolver& symbols, const Checks& checks, Function& function);
  void run();

  // What the rest of the linker wants to know.
  std::vector<uint32_t> called_functions, used_shared;
  bool has_indirect_call = false, uses_dynamic_shared = false, uses_grid_sync = false;
  std::vector<uint32_t> address_taken;  // functions

 private:
  struct Address {
    Ref base;
    int64_t offset;
    uint32_t how;           // memory_operand bits
    bool kernel_parameter;  // offset is in the parameter buffer
  };
  struct Variable {
    enum class Kind : uint8_t { local, kernel_parameter, symbol } kind;
    uint32_t offset = 0, bytes = 0;
    Symbol symbol{};
  };
  struct AtomicForm {  // of atom, red and red.async
    ptx::Space space = ptx::Space::generic;
    std::string operation, step;  // "add", "@atom.add.u32"
    char size = 'w';
    uint32_t elements = 1;
    bool policy = false;  // one more operand, of no effect
  };
  using Suffixes = std::vector<std::string_view>;
  using Lowerer = void (Lowering::*)(const ptx::Instruction&, const Suffixes&);
  static const std::unordered_map<std::string_view, Lowerer>& irregular();

  // lowering.cpp
  void declare_variables();
  void check_sizes() const;
  void lower(const ptx::Instruction& instruction);
  void lower_regular(const ptx::Instruction& instruction, const Opcode& opcode, std::string_view name);
  void lower_extremum_of_three(const ptx::Instruction&, std::string_view step);
  void lower_parameter_to_generic(const ptx::Instruction&);
  LoweredInstruction& emit(Handler handler, std::initializer_list<Ref> defs, std::initializer_list<Ref> uses);
  LoweredInstruction& emit(std::string_view internal, std::initializer_list<Ref> defs,
                           std::initializer_list<Ref> uses);
  void check_access(std::string_view internal, LoweredInstruction& made);
  const Opcode& internal(const std::string& name);
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail_opcode() const;

  // lower_operands.cpp
  Ref temporary(char size);
  Ref constant(const Constant& value);
  Ref immediate(uint64_t value, char size);
  Ref source(const ptx::Operand& operand, char size);
  Ref destination(const ptx::Operand& operand, char size);
  Ref named_source(const ptx::Operand& operand, char size);
  bool special_source(std::string_view name, char size, Ref& result);
  Ref carry_flag();
  char size_of(const ptx::Operand& operand, char if_none) const;
  const Variable* find_variable(std::string_view name, uint32_t scope) const;
  uint32_t find_label(std::string_view name, uint32_t scope) const;
  const ptx::BranchTable* find_branch_table(std::string_view name, uint32_t scope) const;
  const ptx::CallPrototype* find_prototype(std::string_view name, uint32_t scope) const;
  Address address(const ptx::Operand& operand, ptx::Space space);
  Ref plain_address(const ptx::Operand& operand, ptx::Space space, uint32_t& how);  // offset folded in
  Ref symbol_address(const Symbol& symbol, int64_t offset, char size);
  Ref generic_parameter_address(Ref offset);

  // lower_memory.cpp
  void lower_mov(const ptx::Instruction&, const Suffixes&);
  void lower_ld(const ptx::Instruction&, const Suffixes&);
  void lower_st(const ptx::Instruction&, const Suffixes&);
  void lower_atom(const ptx::Instruction&, const Suffixes&);
  void lower_cvt(const ptx::Instruction&, const Suffixes&);
  void lower_hint(const ptx::Instruction&, const Suffixes&);
  void lower_createpolicy(const ptx::Instruction&, const Suffixes&);
  AtomicForm atomic_form(const Suffixes& suffixes) const;

  // lower_async.cpp
  void lower_cp(const ptx::Instruction&, const Suffixes&);
  void lower_copy_async(const ptx::Instruction&, const Suffixes&);
  void lower_bulk(const ptx::Instruction&, const Suffixes&);
  void lower_mbarrier(const ptx::Instruction&, const Suffixes&);
  void lower_red_async(const ptx::Instruction&, const Suffixes&);
  void lower_store_async(const ptx::Instruction&, const Suffixes&);
  void lower_store_bulk(const ptx::Instruction&, const Suffixes&);
  void pay_barrier(const ptx::Operand& barrier, uint32_t bytes);

  // lower_matrix.cpp
  void lower_ldmatrix(const ptx::Instruction&, const Suffixes&);
  void lower_stmatrix(const ptx::Instruction&, const Suffixes&);
  void lower_wmma(const ptx::Instruction&, const Suffixes&);
  std::vector<uint32_t> register_list(const ptx::Operand& operand, uint32_t count, char size, bool written);

  // lower_video.cpp
  void lower_video(const ptx::Instruction&, const Suffixes&);

  // lower_texture.cpp
  Ref texture_address(const ptx::Operand& operand, uint32_t dimensions, bool layered,
                      std::vector<uint32_t>& list);
  void lower_tex(const ptx::Instruction&, const Suffixes&);
  void lower_surface(const ptx::Instruction&, const Suffixes&);

  // lower_control.cpp
  void lower_bra(const ptx::Instruction&, const Suffixes&);
  void lower_brx(const ptx::Instruction&, const Suffixes&);
  void lower_call(const ptx::Instruction&, const Suffixes&);
  FunctionSignature pointed_signature(const ptx::Operand& prototype) const;
  void lower_ret(const ptx::Instruction&, const Suffixes&);
  void lower_bar(const ptx::Instruction&, const Suffixes&);

  const ptx::Function& syntax_;
  const uint16_t source_;
  const FunctionSignature& signature_;
  SymbolResolver& symbols_;
  const Checks& checks_;
  Function& function_;
  const OpcodeTable& table_;

  LoweredFunction lowered_;
  std::unordered_map<std::string_view, std::vector<std::pair<uint32_t, Variable>>>
      variables_;  // scope, variable
  std::map<std::tuple<int, int, int, int, uint32_t, uint64_t>, uint32_t> constant_index_;
  std::vector<Ref> carry_;  // the carry flag once it is used
  const ptx::Instruction* current_ = nullptr;
};

}  // namespace softgpu
