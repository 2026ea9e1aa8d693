// What a warp's run hands to compiled code and gets back. Compiled code knows the fields by their offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softgpu/exec/warp.h"

namespace softgpu::jit {

struct RunContext {
  std::byte* registers = nullptr;      // home of every register while the warp is not in compiled code
  const Instruction* calls = nullptr;  // the code once more, operands in the scratch area
  void (*call)(Warp&, const Instruction&, uint32_t mask) = nullptr;  // the interpreter's handler
  uint32_t* masks = nullptr;                                         // by block: lanes that wait to run it
  Warp* warp = nullptr;
  uint32_t* warp_pc = nullptr;  // where a memory fault is looked up
  uint32_t* warp_mask = nullptr;
  uint64_t primary_begin = 0, primary_bytes = 0;
  uint64_t shared_base = 0, shared_bytes = 0;
  uint64_t executed = 0;  // warp instructions
  uint32_t block_index[3] = {};
  uint32_t warp_index = 0;
  uint32_t live = 0;                    // lanes that have not exited
  uint32_t owned = 0;                   // lanes that this run moves; the others' registers are not touched
  uint32_t exited = 0;                  // out: lanes that have ended
  uint32_t exit_pc = 0, exit_mask = 0;  // out: where lanes of the running block stopped
  int32_t budget = 0;                   // backward branches left
};

// Enters at 0 (the kernel's beginning), at `2 + 2 * block` (lanes in `masks`, registers at home), at
// `3 + 2 * block` (after a barrier that the whole warp reached: uniform registers in their home's first
// lane).
using Body = uint32_t (*)(RunContext*, uint32_t entry);

// What it returns; from kAtBarrier on: kAtBarrier + the block after the barrier.
enum Outcome : uint32_t {
  kFinished = 0,   // no lane is left to run
  kInterpret = 1,  // lanes in exit_mask stopped at exit_pc; others wait in `masks`
  kTurnOver = 2,   // the budget is used up; all lanes wait in `masks`
  kRefused = 3,    // nothing has happened: what the code expects to be uniform is not
  kAtBarrier = 16,
};
// Added to a barrier's entry: only bring the registers home, as if the barrier had been reached the general
// way.
inline constexpr uint32_t kUnpark = 0x8000'0000u;

}  // namespace softgpu::jit
