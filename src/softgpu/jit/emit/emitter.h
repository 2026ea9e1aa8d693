// Makes one kernel's code, for one shape of block, as text of LLVM's intermediate language.
//
// Every register is a local variable of the function (LLVM turns those into values), a scalar where all lanes
// are known to agree. Each basic block has a mask of the lanes that wait to run it; after a block the lowest
// block in the code with waiting lanes is next, as in the interpreter. An instruction without code of its own
// calls the interpreter's handler; one that may have to wait stores the registers and leaves to the
// interpreter, which goes on at the same instruction.
//
// Knowledge about registers is found by making the code again until nothing new was learned: so it cannot
// differ from what the code does.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "softgpu/jit/compiled_block.h"
#include "softgpu/jit/flow_graph.h"
#include "softgpu/jit/tier_function.h"
#include "softgpu/jit/value.h"

namespace softgpu::jit {

inline std::string number(auto value) {  // also of enumerations
  return std::to_string(+value);
}

class Emitter {
 public:
  Emitter(const FlowGraph& graph, const TierFunction& tier, const Kernel& kernel, Dim3 block);
  // The module's text; nothing if the kernel needs more of it than compiling is worth. Valid afterwards:
  // entries(), exits() and read_constants().
  std::optional<std::string> run(const std::string& symbol);
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  // What each way out puts on the stage.
  [[nodiscard]] const std::vector<std::vector<SavedRegister>>& exits() const { return exits_; }
  [[nodiscard]] ReadConstants read_constants() const;

 private:
  // --- text (emit_text.cpp)
  // How an operation is written: on scalars or on vectors.
  struct Form {
    bool scalar;
    [[nodiscard]] std::string integer(char size) const;          // i32 or <32 x i32>
    [[nodiscard]] std::string floating(char size) const;         // float or <32 x float>
    [[nodiscard]] std::string boolean() const;                   // i1 or <32 x i1>
    [[nodiscard]] std::string name(char kind, char size) const;  // of intrinsics: f32, v32i64
    [[nodiscard]] std::string literal(char size, uint64_t value) const;
  };
  std::string set(const std::string& expression);  // a new name for it
  void line(const std::string& text);
  void label(const std::string& name);
  std::string fresh(const std::string& prefix);
  std::string intrinsic(const std::string& result, const std::string& name, const std::string& parameters);

  // --- values (emit_values.cpp)
  Value use(uint32_t bits);
  Value constant(uint32_t index);
  Value thread_index(SpecialRegister which, char size);
  std::string vector(const Value& value);              // all lanes
  std::string lanes_of_mask(const std::string& mask);  // i32 -> <32 x i1>
  std::string mask_of_lanes(const std::string& lanes);
  std::string predicate_mask(const Value& value);   // i32
  std::string first_lane(const std::string& mask);  // its number, i32
  std::string splat(char size, const std::string& scalar);
  Value scalar_value(char size, const std::string& text);
  Value vector_value(char size, const std::string& text);
  Value literal_value(char size, uint64_t value);
  void define(uint32_t bits, const Value& value);
  void learn(uint32_t reg, const Value& value);
  [[nodiscard]] bool needs_select(uint32_t reg) const;
  [[nodiscard]] std::string variable(uint32_t reg) const;
  [[nodiscard]] std::string type_of(uint32_t reg) const;

  // --- the function (function.cpp, leaving.cpp)
  void emit_all(const std::string& symbol);
  void emit_entries();
  void emit_entry(uint32_t b);
  [[nodiscard]] bool follows_barrier(uint32_t b) const;
  void emit_block(uint32_t b);
  void expect_any_results_of_left_out();
  void emit_terminator(uint32_t b);
  void dispatch(const Set& candidates, bool certain);
  bool find_pending();  // false if there are too many
  void leave(const std::string& outcome);
  void count_executed(uint32_t instructions);
  // Leaves to the interpreter at the current instruction: the text of a branch's target.
  std::string leaving();
  void emit_leaving(uint32_t b);
  uint32_t exit_table(const Set& registers);
  void put_away(uint32_t reg, bool whole_warp);
  void take_out(uint32_t reg);
  [[nodiscard]] std::vector<SavedRegister> saved(const Set& registers) const;
  void emit_head();
  std::string lanes_at_start();
  void emit_next_warp();
  void emit_reset();
  [[nodiscard]] size_t vector_bytes() const;
  [[nodiscard]] Set with_pending(Set live, uint32_t b) const;
  std::string home_pointer(uint32_t offset);
  void keep_registers_at_hand();
  void emit_barrier(uint32_t b, uint32_t i);
  // Leaves to the interpreter at the current instruction unless `holds` (i1).
  void require(const std::string& holds);

  // --- instructions
  void emit_instruction(uint32_t i);
  bool emit_integer(const LoweredInstruction& in);  // emit_integer.cpp
  bool emit_bits(const LoweredInstruction& in);
  bool emit_float(const LoweredInstruction& in);    // emit_float.cpp
  bool emit_compare(const LoweredInstruction& in);  // emit_compare.cpp
  bool emit_convert(const LoweredInstruction& in);  // emit_convert.cpp
  bool emit_move(const LoweredInstruction& in);
  bool emit_memory(const LoweredInstruction& in);  // emit_memory.cpp
  bool emit_warp(const LoweredInstruction& in);    // emit_warp.cpp
  void emit_converge(const LoweredInstruction& in);
  void emit_shuffle(const LoweredInstruction& in, std::string_view mode);
  void emit_known_shuffle(const LoweredInstruction& in, std::string_view mode);
  void emit_shuffle_in_memory(const LoweredInstruction& in, std::string_view mode);
  void emit_call(const LoweredInstruction& in);  // the interpreter's handler (emit_call.cpp)
  void call_handler(const LoweredInstruction& in);
  Value called_operand(char size, uint32_t place);

  template <class Build>
  Value lanewise(char size, std::initializer_list<Value> sources, Build build);
  template <class Build>
  Value compare_lanes(std::initializer_list<Value> sources, Build build);
  std::string flushed(const Form& form, const std::string& text);
  Value shifted_sum(const Value& a, const Value& b, bool subtract);
  Value multiplied(const Value& a, const Value& b);
  Value extended(const Value& a, char size, bool is_signed);
  Value divided(const Value& a, const Value& b, bool is_signed, bool remainder);
  Value divided_in_lanes(const Value& a, const Value& b, bool is_signed, bool remainder);

  // --- memory (emit_memory.cpp)
  struct Access {
    Value address;  // 64 bits; in shared memory: offset
    bool shared = false;
    uint32_t bytes = 0;    // of one lane's access
    uint32_t element = 0;  // bytes of one element
  };
  // A load or store, of one element for each lane or of several side by side.
  struct Memory : Access {
    bool loads = false, several = false, is_signed = false;
    char size = 'w';                           // of the registers
    uint32_t count = 1;                        // of elements
    std::string memory_scalar, memory_vector;  // types of an element, and of all lanes'
    bool scalar_result = false;
    std::vector<std::string> results;  // variables of a load's
    std::string lanes;                 // that run, <32 x i1>
    std::string fast, slow, after;     // labels
  };
  bool read_memory_access(const LoweredInstruction& in, Memory& made);
  bool find_address(const LoweredInstruction& in, uint32_t base_operand, uint32_t bytes, uint32_t element,
                    Access& made);
  void store_result(const Memory& access, uint32_t k, const std::string& text, bool scalar);
  Value stored_value(const LoweredInstruction& in, const Memory& access, uint32_t k);
  std::string narrowed(const Memory& access, const std::string& text, bool scalar);
  void emit_parameter_access(const Memory& access);
  void emit_checked_access(const LoweredInstruction& in, const Memory& access);
  std::string window_bytes(const Access& access);
  std::string host_address(const Access& access, const std::string& address);
  void require_shared(const LoweredInstruction& in, const Access& access);
  [[nodiscard]] char operand_size(uint32_t bits) const;

  // --- by shape (emit_access.cpp)
  void emit_uniform_access(const LoweredInstruction& in, const Memory& access);
  [[nodiscard]] uint32_t row_lanes() const;
  void emit_rows(const LoweredInstruction& in, const Memory& access, const std::vector<std::string>& pointers,
                 uint32_t lanes);
  std::string joined(std::vector<std::string> parts, uint32_t lanes, const std::string& element);
  void emit_checked_gathers(const LoweredInstruction& in, const Memory& access, const std::string& addresses);
  void emit_shaped_access(const LoweredInstruction& in, const Memory& access);
  void emit_scattered_access(const LoweredInstruction& in, const Memory& access);
  void emit_row(const LoweredInstruction& in, const Memory& access, const std::string& pointer);
  void emit_gather(const LoweredInstruction& in, const Memory& access, const std::string& addresses,
                   uint32_t k);
  void emit_gathers(const LoweredInstruction& in, const Memory& access, const std::string& addresses);
  void emit_interleaved_store(const LoweredInstruction& in, const Memory& access, const std::string& pointer);
  void emit_blended_load(const Memory& access, const std::string& pointer,
                         const std::vector<int64_t>& distinct);
  void begin_fast_way(const LoweredInstruction& in, const Memory& access, const std::string& low,
                      uint64_t span);
  std::string pointer_at(const std::string& pointer, int64_t offset);

  // --- windows (emit_window.cpp)
  struct Room {
    std::string name;
    bool shared;
    uint64_t span;
    unsigned low_bits;
    bool operator<(const Room& other) const { return name < other.name; }
  };
  std::string within_window(bool shared, const std::string& low, uint64_t span, uint32_t bytes);
  void emit_rooms();
  void mark_place();
  void fetch_ahead(const std::string& pointer, uint32_t row_bytes);

  const FlowGraph& graph_;
  const LoweredFunction& lowered_;
  const TierFunction& tier_;
  const Kernel& kernel_;
  Dim3 block_;
  std::vector<Entry> entries_;
  std::vector<std::vector<SavedRegister>> exits_;
  Set leaving_live_;  // registers that live where the current basic block is left
  bool leaves_ = false;

  std::vector<Knowledge> knowledge_;  // by register
  std::vector<bool> diverges_;        // by block: lanes may take both ways
  std::vector<Set> pending_;          // by block: where others may wait meanwhile
  bool registers_at_hand_ = false;    // the register file's address is kept in a register
  bool exchanges_ = false;            // shuffles by way of memory
  bool learned_ = false;

  std::string text_, cold_, globals_, variables_;
  std::set<std::string> declarations_;
  std::set<Room> rooms_;
  std::string marked_mask_;  // what %warp_mask holds, in the current basic block; empty: not known
  uint32_t names_ = 0;
  uint32_t current_block_ = 0, current_ = 0;  // block, instruction
  std::string mask_;                          // i32: lanes that execute the current instruction
  std::string block_mask_;
  Value guard_;
  bool guarded_ = false;
  // Accesses to shared memory by this register, with immediates in [begin, end), are known to be allowed.
  struct Checked {
    uint32_t base;
    int64_t begin, end;
    uint32_t alignment;
  };
  std::vector<Checked> checked_;  // in the current basic block
  std::vector<bool> constant_used_,
      constant_of_each_warp_;  // read from the first warp's registers, or each one's
};

template <class Build>
Value Emitter::lanewise(char size, std::initializer_list<Value> sources, Build build) {
  bool scalar = true;
  for (const Value& source : sources) scalar &= source.uniform();
  std::vector<std::string> texts;
  for (const Value& source : sources) texts.push_back(scalar ? source.text : vector(source));
  const Form form{scalar};
  const std::string text = build(form, texts);
  return scalar ? scalar_value(size, text) : vector_value(size, text);
}

template <class Build>
Value Emitter::compare_lanes(std::initializer_list<Value> sources, Build build) {
  Value made = lanewise('p', sources, build);
  if (!made.scalar) made.text = mask_of_lanes(made.text);
  return made;
}

}  // namespace softgpu::jit
