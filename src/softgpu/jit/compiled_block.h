// A kernel whose warps run in compiled code.
#pragma once

#include <atomic>
#include <memory>

#include "softgpu/exec/program/compiled_kernel.h"
#include "softgpu/jit/flow_graph.h"
#include "softgpu/jit/run_context.h"
#include "softgpu/jit/saved_register.h"
#include "softgpu/jit/tier_function.h"

namespace softgpu::jit {

// Where compiled code can be entered with lanes in several places.
struct Entry {
  uint32_t block = 0;
  std::vector<uint32_t> pending;  // blocks above it in which lanes may wait meanwhile
  std::vector<SavedRegister> registers, barrier_registers;  // that are taken from the stage
};

// Constants, by number, that compiled code reads from the register file: from the first warp's, for all
// warps, or from each warp's own. The others it is made with. The interpreter needs all of them, and gets
// them when it comes to that.
struct ReadConstants {
  std::vector<uint32_t> of_first, of_each;
};

class CompiledBody : public CompiledKernel {
 public:
  // `tier` points into a program, which each launch keeps alive. It doesn't stay alive for what was compiled
  // of it: the compiler forgets the body when the program is gone.
  CompiledBody(std::unique_ptr<const TierFunction> tier, const FlowGraph& graph, std::vector<Entry> entries,
               std::vector<std::vector<SavedRegister>> exits, ReadConstants constants, Body body);

  void start(Block& block) const override;
  BlockStatus run(Block& block, uint64_t slice_instructions) const override;
  [[nodiscard]] uint64_t times_in_left_out() const override { return times_in_left_out_; }

 private:
  struct State;
  static void call_handler(Warp& warp, const Instruction& in, uint32_t mask);
  void make_state(Block& block) const;
  void take_more_blocks(Block& block, State& state) const;
  void end_blocks(Block& block, State& state) const;
  void leave_fast_path(Block& block, State& state, uint32_t outcome) const;
  BlockStatus run_general(Block& block, State& state, uint64_t limit) const;
  // Until the warp's turn is over; false if none of its lanes can run.
  bool turn(State& state, Warp& warp) const;
  bool enter(State& state, Warp& warp, bool& turn_over) const;
  void stopped(State& state, Warp& warp, uint32_t outcome) const;
  void interpret(Warp& warp, const Frame* base, bool& turn_over) const;
  void note_left_out(uint32_t pc) const;

  std::unique_ptr<const TierFunction> tier_;
  std::vector<uint32_t> begin_of_;  // first instruction by block
  std::vector<uint32_t> entry_of_;  // by instruction: 1 + index into entries_, 0: none
  std::vector<uint32_t> block_at_;
  std::vector<bool> left_out_;  // by block
  mutable std::atomic<uint64_t> times_in_left_out_ = 0;
  bool has_barriers_;
  std::vector<Entry> entries_;
  std::vector<std::vector<SavedRegister>> exits_;
  ReadConstants constants_;
  Body body_;
};

}  // namespace softgpu::jit
