// A GPU that executes PTX as slowly and plainly as the manual describes it: one thread at a time, each with a
// program counter of its own, straight from the syntax tree. A thread runs until it ends or waits for others;
// what threads do together (barriers, votes, shuffles) is done when all that take part have come.
//
// It is strict: what PTX leaves undefined (a register read before it was written, a lane missing from a
// member mask, an access outside of what the program has) is an error here, not some behaviour.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/syntax.h"
#include "softgpu/reference/operation.h"

namespace softgpu::reference {

// The program does what PTX leaves undefined, what this reference does not know, or does not end.
struct Undefined : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Shape {
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
};

// Where each space lies among the generic addresses. Global memory lies at its host address.
inline constexpr uint64_t shared_window = uint64_t{1} << 60, local_window = uint64_t{1} << 61,
                          parameter_window = uint64_t{1} << 62, variable_window = uint64_t{1} << 59,
                          function_window = uint64_t{1} << 58, window_bytes = uint64_t{1} << 32;

struct Variable {
  ptx::Space space = ptx::Space::generic;  // param: in the frame (of an entry: in the launch's parameters)
  uint64_t offset = 0, bytes = 0;
};

struct FunctionPlan;
struct MatrixForm;
class Machine;
struct Thread;

// Of ld and st.
struct Access {
  ptx::Space space = ptx::Space::generic;
  size_t elements = 1;
  NumberType type;
};

// One instruction and what is known of it before it runs.
struct Step {
  const ptx::Instruction* syntax = nullptr;
  void (Machine::*execute)(Thread&, const Step&) = nullptr;
  const Operation* operation = nullptr;
  std::vector<std::string_view> suffixes;
  std::vector<uint32_t> targets;  // of a branch, as instruction numbers
  bool extends_sign = false;      // cvt into a wider register
  Access access;
};
[[nodiscard]] Access access_of(const Step& step);

struct FunctionPlan {
  const ptx::Function* syntax = nullptr;
  std::vector<Step> steps;
  std::unordered_map<std::string_view, std::vector<std::pair<uint32_t, Variable>>> variables;  // by scope
  std::vector<Variable> parameters, returns;
  uint64_t frame_bytes = 0;  // .local and .param variables
};

struct Frame {
  const FunctionPlan* plan = nullptr;
  uint32_t next = 0;  // instruction
  uint64_t base = 0;  // of its variables in the thread's local memory
  std::vector<Bits> registers;
  std::vector<bool> written;
};

// Bytes that know whether they were written.
struct Memory {
  std::vector<std::byte> bytes;
  std::vector<bool> written;
  void resize(size_t size) {
    bytes.resize(size);
    written.resize(size);
  }
};

struct Thread {
  enum class State : uint8_t { ready, at_barrier, with_warp, ended } state = State::ready;
  uint32_t index = 0;  // in the block
  Dim3 place, block;
  std::vector<Frame> frames;
  Memory local;
  bool carry = false, carry_written = false;
  uint32_t members = 0;  // with_warp
  uint32_t barrier = 0;  // at_barrier
  const Step* waiting = nullptr;
};

struct Barrier {
  uint32_t arrived = 0, expected = 0;  // expected 0: all threads of the block
  uint32_t population = 0;
  bool all = true, any = false;
};

class Machine {
 public:
  // `arena`: the global memory of the launch. Throws Undefined for what it does not know.
  Machine(const ptx::Module& module, std::span<std::byte> arena);
  // Throws Undefined; after more than `step_limit` instructions too.
  void run(std::string_view entry, const Shape& shape, std::span<const std::byte> parameters,
           uint64_t step_limit);

 private:
  // plan.cpp
  void declare_variables(FunctionPlan& plan);
  void plan_instruction(FunctionPlan& plan, const ptx::Instruction& instruction);
  void place_variable(const ptx::Variable& variable, Memory& memory, ptx::Space space);
  uint32_t target_of(const FunctionPlan& plan, std::string_view label, uint32_t scope) const;
  // machine.cpp
  void run_block(const FunctionPlan& entry, const Dim3& block);
  void run_thread(Thread& thread);
  bool open_barriers();
  // operands.cpp
  [[nodiscard]] Bits value(const Thread& thread, const ptx::Operand& operand, int bits) const;
  [[nodiscard]] bool predicate(const Thread& thread, const ptx::Operand& operand) const {
    return value(thread, operand, 1) != 0;
  }
  void set(Thread& thread, const ptx::Operand& operand, Bits value) const;
  [[nodiscard]] int width(const Thread& thread, const ptx::Operand& operand, int otherwise) const;
  [[nodiscard]] const Variable* find_variable(const FunctionPlan& plan, std::string_view name,
                                              uint32_t scope) const;
  [[nodiscard]] Bits named_value(const Thread& thread, const ptx::Operand& operand) const;
  // An address in one space made generic.
  [[nodiscard]] uint64_t address(const Thread& thread, const ptx::Operand& operand, ptx::Space space) const;
  // memory.cpp
  struct Place {
    std::byte* bytes;
    std::vector<bool>* written;  // null: everything is
    size_t offset;
  };
  Place locate(Thread& thread, uint64_t address, uint64_t bytes, uint64_t alignment, bool writes);
  Bits load(Thread& thread, uint64_t address, uint64_t bytes, uint64_t alignment);
  void store(Thread& thread, uint64_t address, Bits value, uint64_t bytes, uint64_t alignment);
  void copy_in_frames(Thread& thread, const Frame& from, const Variable& source, const Frame& to,
                      const Variable& target);
  // What instructions do.
  void compute(Thread& thread, const Step& step);
  void do_mov(Thread& thread, const Step& step);
  void do_load(Thread& thread, const Step& step);
  void do_store(Thread& thread, const Step& step);
  void do_atomic(Thread& thread, const Step& step);
  void do_copy_async(Thread& thread, const Step& step);
  void do_convert_address(Thread& thread, const Step& step);
  void do_is_in_space(Thread& thread, const Step& step);
  void do_branch(Thread& thread, const Step& step);
  void do_indexed_branch(Thread& thread, const Step& step);
  void do_call(Thread& thread, const Step& step);
  void do_return(Thread& thread, const Step& step);
  void do_exit(Thread& thread, const Step& step);
  void do_nothing(Thread& thread, const Step& step);
  void do_barrier(Thread& thread, const Step& step);
  void do_with_warp(Thread& thread, const Step& step);
  void do_with_whole_warp(Thread& thread, const Step& step);
  void do_active_mask(Thread& thread, const Step& step);
  // collective.cpp
  bool complete_warp_instructions();
  void complete(const Step& step, std::span<Thread> warp, uint32_t members);
  void complete_shuffle(const Step& step, std::span<Thread> warp, uint32_t members);
  // matrix.cpp
  void complete_mma(const Step& step, std::span<Thread> warp);
  static Bits sum_of_products(const Step& step, const MatrixForm& form, const std::vector<__int128>& products,
                              __int128 given);
  __int128 scale_of_product(const Step& step, const MatrixForm& form, std::span<Thread> warp, size_t row,
                            size_t column, size_t k);
  void complete_movmatrix(const Step& step, std::span<Thread> warp);
  void complete_matrix_access(const Step& step, std::span<Thread> warp);

  [[noreturn]] static void refuse(const Step& step, const std::string& why);

  std::vector<FunctionPlan> functions_;
  std::unordered_map<std::string_view, uint32_t> function_by_name_;
  std::unordered_map<std::string_view, Variable> variables_;
  std::span<std::byte> arena_;
  Memory global_variables_, shared_;
  uint64_t static_shared_bytes_ = 0;
  // Of the launch and block that run.
  Shape shape_;
  Dim3 block_;
  std::span<const std::byte> parameters_;
  std::vector<Thread> threads_;
  std::array<Barrier, 16> barriers_;
  uint64_t steps_left_ = 0;
};

}  // namespace softgpu::reference
