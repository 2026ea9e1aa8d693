// The state of one warp: 32 lanes that execute in groups, each group with its own program counter.
//
// Divergence: a group is a set of lanes at the same place (frame and pc). The scheduler runs the group
// that is deepest in calls and, among those, lowest in the code; groups that meet are merged. Whatever
// the control flow, every lane's own order of execution is kept.
//
// States of a group (GroupState) that does not run; the running one is in Warp::pc, frame and group_mask:
//   running -> runnable          suspend(): its turn ended, or it has come to where it may meet others;
//                                branch(): the part of it that goes on later
//   running -> at_barrier        block_on_barrier(); -> runnable when Block::open_barriers() opens it
//   running -> converging        converge(), converge_apart() at a .sync instruction whose lanes are not all
//   here; -> running
//                                when others reach the same place, or when no group is runnable: then it
//                                goes on with the lanes that it has (must_converge_now)
//   running -> at_grid_barrier   -> runnable when every block has arrived (executor.cpp)
//   running -> gone              its last lane exits
//
// 1. Every live lane is in exactly one group: group_mask and the masks of `groups` are disjoint, and
//    together they are `live`. Lanes that have exited are in none.
// 2. mask is a part of group_mask, and equal to it between two instructions. lane_mask is `mask` expanded,
//    unless mask is full.
// 3. Runnable groups with the same frame and pc become one: when one of them is pushed, at the latest when
//    one is chosen.
// 4. meet_pc is at most the lowest pc above the running group's at which a group of the same frame waits
//    to run or to converge, so the running group does not pass it unseen. 0 makes the scheduler look at
//    once. In a turn for those that wait longest (rotated) it is no bound: they must get ahead.
// 5. No lane waits for ever for another that could run: a turn ends after a bounded number of backward
//    branches, of calls, and of choices of a group, and then those that ran last longest ago go on, even from
//    a higher pc. So a launch that is to end is asked again and again, whatever its lanes do.
// 6. A block, its warps and their groups belong to the thread that has the block in a slice; between
//    slices to the BlockRunner in whose list it is. Of what blocks share, LaunchState, only atomics and
//    what stands under its two mutexes is written.
//
// Order of locks: LaunchState::mutex and LaunchState::textures_mutex are never held together; Standstill's
// and HelperThreads' are taken with neither. The driver is asked for a texture under textures_mutex. A fault
// leaves by longjmp, so no lock and no destructor may lie between a handler's call of raise_fault() and
// BlockRunner::run_slice().
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "softgpu/exec/program/program.h"

namespace softgpu {

struct Block;
struct TextureView;

inline constexpr uint32_t warp_lanes = 32;
inline constexpr uint32_t full_mask = 0xffffffffu;
inline constexpr int32_t full_branch_budget =
    16384;  // backward branches and calls before another warp has its turn
inline constexpr uint64_t full_turn =
    1u << 18;  // instructions of a warp in a turn: a longer one ends at a backward branch
inline constexpr uint32_t most_choices = 1u << 20;  // of a group, before the same
inline constexpr uint32_t no_index = 0xffffffffu;

struct Frame {
  const Function* function = nullptr;
  std::byte* registers = nullptr;
  Frame* parent = nullptr;
  const CallSite* site = nullptr;
  uint32_t return_pc = 0;
  uint32_t depth = 0;
  uint32_t lanes = 0;         // that have not returned yet
  uint32_t local_offset = 0;  // of this frame in each thread's local memory
  uint64_t block_serial = 0;  // for which block the special registers were filled
};

enum class GroupState : uint8_t {
  runnable,
  at_barrier,  // until the block's barrier opens
  converging,  // at a .sync instruction, waiting for other lanes of its member mask
  at_grid_barrier,
};

struct Group {
  uint32_t mask = 0;
  uint32_t pc = 0;
  Frame* frame = nullptr;
  GroupState state = GroupState::runnable;
  uint8_t barrier = 0;
  uint32_t result_register = no_index;  // predicate or 32-bit register that bar.red writes at opening
  uint32_t reduction = 0;               // 0 popc, 1 and, 2 or
  uint64_t last_run = 0;
};

struct Warp {
  // Read by every handler.
  std::byte* registers = nullptr;
  uint32_t mask = 0;                               // lanes that execute this instruction
  uint32_t group_mask = 0;                         // lanes of the running group
  uint32_t pc = 0;                                 // of the next instruction
  uint32_t meet_pc = no_index;                     // the scheduler looks in when pc gets here; 0: at once
  alignas(64) int32_t lane_mask[warp_lanes] = {};  // `mask` expanded to 0 / -1, valid unless mask is full
  uint32_t expanded_mask = 0;

  bool keeps_shapes = false;  // every access goes by its handler, so the slots of address shapes are right

  const Instruction* code = nullptr;
  const uint16_t* straight = nullptr;  // Function::straight of the running frame
  Frame* frame = nullptr;
  Block* block = nullptr;

  // Spaces.
  uint64_t primary_begin = 0, primary_end = 0;  // MemoryMap's inline-checked range
  uint64_t shared_base = 0, shared_bytes = 0;
  uint64_t local_base = 0, local_stride = 0;  // lane 0's local memory; bytes between lanes
  uint64_t parameters = 0, parameter_bytes = 0;

  // Scheduling.
  uint32_t live = 0;  // lanes that have not exited
  int32_t branch_budget = 0;
  bool must_converge_now = false;  // a .sync instruction goes on with the lanes it has
  bool rotated = false;
  bool yield_requested = false;
  uint32_t sleeps_ns = 0;  // what ended the turn: nanosleep for so long, or 0 something else
  uint32_t index = 0;      // in the block
  uint32_t choices = 0;    // of a group, in this turn
  int32_t budget_limit = 0;
  uint64_t clock = 0;         // instructions executed
  uint64_t turn_end = 0;      // on that clock; a loop with a long body goes round less often in a turn
  std::vector<Group> groups;  // all but the running one
  std::vector<Frame*> free_frames;
};

// Eight bits as eight lanes of 0 or -1.
struct LaneMasks {
  alignas(32) int32_t of[256][8] = {};
  constexpr LaneMasks() {
    for (int bits = 0; bits < 256; ++bits) {
      for (int i = 0; i < 8; ++i) of[bits][i] = bits >> i & 1 ? -1 : 0;
    }
  }
};
inline constexpr LaneMasks lane_masks;

inline void set_mask(Warp& warp, uint32_t mask) {
  warp.mask = mask;
  if (mask != full_mask && mask != warp.expanded_mask) {
    for (uint32_t i = 0; i < warp_lanes; i += 8)
      std::memcpy(warp.lane_mask + i, lane_masks.of[mask >> i & 255], sizeof(lane_masks.of[0]));
    warp.expanded_mask = mask;
  }
}

// std::popcount is a call where the processor may lack the instruction.
inline uint32_t count_lanes(uint32_t mask) {
  if (mask == full_mask) return warp_lanes;
  mask -= mask >> 1 & 0x55555555u;
  mask = (mask & 0x33333333u) + (mask >> 2 & 0x33333333u);
  return ((mask + (mask >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

// --- services for handlers, in block.cpp and friends; none of the noreturn ones runs destructors ---

// Ends the launch. `address` is shown for memory faults.
[[noreturn]] void raise_fault(Warp& warp, const Instruction& in, Fault fault, const char* what,
                              uint64_t address = 0, uint32_t lane = 0);
// Is [address, address + size) inside something this thread may touch?
bool address_is_valid(const Warp& warp, uint64_t address, uint64_t size);
// The same without the trust in MemoryMap's primary range: inside one allocation or variable.
bool address_is_in_known_memory(const Warp& warp, uint64_t address, uint64_t size);
bool address_is_constant(const Warp& warp, uint64_t address);  // inside a .const variable

void block_on_barrier(Warp& warp, const Instruction& in, uint32_t barrier, uint32_t expected_threads,
                      bool wait, uint32_t reduction, uint32_t result_register, uint32_t predicate);
// The second half of a barrier at which lanes have arrived without waiting: those go on for which it has
// opened since.
void wait_for_arrivals(Warp& warp, uint32_t barrier);
// True if all live lanes of `members` are here; else the running lanes wait and the handler must return.
// `exchanges`: lanes read each other's registers then, which lanes of another call of the function cannot.
bool converge(Warp& warp, const Instruction& in, uint32_t members, bool exchanges = true);
// The same where lanes name different members, lane by lane: whoever stands at the instruction is here for
// all of them. Returns the lanes that go on; the others of the running ones wait. CUDA says nothing of masks
// that differ; this is what lanes with program counters of their own would see, and it always ends.
uint32_t converge_apart(Warp& warp, const Instruction& in, const uint32_t* members, bool exchanges = true);
// Null for a handle that the driver does not know. Holds until the launch ends.
const TextureView* find_texture(Warp& warp, uint64_t handle, bool surface);
void exit_lanes(Warp& warp);
void call_function(Warp& warp, const Instruction& in);
void return_from_function(Warp& warp, const Instruction& in);
// Splits the running group: `taken` goes to target, the rest falls through.
void branch(Warp& warp, uint32_t target, uint32_t taken);
uint64_t read_clock(const Warp& warp);
uint64_t read_global_timer();

}  // namespace softgpu
