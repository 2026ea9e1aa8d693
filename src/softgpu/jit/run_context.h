// What a run of compiled code is given and gives back. The code knows the fields by their offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softgpu/exec/run/warp.h"

namespace softgpu::jit {

// Of the memory that compiled code accesses by itself: no access is wider.
inline constexpr uint64_t window_alignment = 32;

struct RunContext {
  std::byte* registers = nullptr;  // of warp 0; the other warps' follow
  uint64_t register_bytes = 0;     // of one warp
  Warp* warps = nullptr;
  Warp** running = nullptr;            // told which warp runs
  const Instruction* calls = nullptr;  // the code once more, operands in the scratch area
  void (*call)(Warp&, const Instruction&, uint32_t mask) = nullptr;  // the interpreter's handler
  uint32_t* masks = nullptr;                                         // by block: lanes that wait to run it
  uint32_t* entries = nullptr;                                       // by warp: where it goes on
  uint32_t* block_x = nullptr;                                       // told which block runs
  uint64_t primary_begin = 0, primary_bytes = 0;
  uint64_t shared_base = 0, shared_bytes = 0;
  uint64_t parameters = 0, parameter_bytes = 0;
  uint64_t executed = 0;         // warp instructions, about
  uint32_t block_index[3] = {};  // x counts up to block_end
  uint32_t block_end = 0;
  uint32_t threads = 0, warp_count = 0;  // of the block
  uint32_t warp_index = 0;               // that runs
  uint32_t waits = 0;                    // number of the barrier at which a warp waits, and 1
  uint32_t rounds = 0;                   // over all warps, before the caller looks in
  uint32_t owned = 0;                    // lanes that this run moves; the others' registers are not touched
  uint32_t exited = 0;                   // out: lanes that have ended
  uint32_t exit_pc = 0, exit_mask = 0;   // out: where lanes of the running block stopped
  uint32_t exit_table = 0;               // out: which registers are on the stage
  int32_t budget = 0;                    // backward branches left
};

// Entry all_warps_entry: every warp of the block where `entries` says, until all have ended or one has to be
// looked after, and then the next block. Otherwise an entry of the warp `warp_index`, with lanes in `masks`.
using Body = uint32_t (*)(RunContext*, uint32_t entry);

inline constexpr uint64_t most_executed = 1'000'000;  // before the caller looks in, after a warp's turn

inline constexpr uint32_t all_warps_entry = ~0u, start_entry = 0, ended_entry = ~0u - 1;
constexpr uint32_t general_entry(uint32_t block) {
  return 1 + 2 * block;
}
constexpr uint32_t barrier_entry(uint32_t block) {  // after a barrier that the whole warp reached
  return 2 + 2 * block;
}

enum Outcome : uint32_t {
  outcome_finished = 0,   // no lane is left to run; of all warps: neither are blocks
  outcome_interpret = 1,  // lanes in exit_mask stopped at exit_pc; others wait in `masks`
  outcome_turn_over = 2,  // the budget is used up; all lanes wait in `masks`
  outcome_look_in = 3,    // of all warps: they go on where they are, if the caller has nothing against it
};

}  // namespace softgpu::jit
