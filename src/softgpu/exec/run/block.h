// A block in execution: its warps, shared and local memory, barriers. Resumable: it runs in slices and
// keeps all state in here, so no operating system thread belongs to it.
#pragma once

#include <csetjmp>
#include <memory>
#include <mutex>
#include <vector>

#include "softgpu/exec/checks/block_checks.h"
#include "softgpu/exec/run/block_pages.h"
#include "softgpu/exec/run/launch_state.h"
#include "softgpu/exec/run/warp.h"

namespace softgpu {

struct Barrier {
  std::vector<uint32_t> arrived;  // per warp: lanes that wait or have arrived
  uint32_t count = 0;             // arrivals of lanes
  uint32_t extra = 0;             // arrivals of lanes that had arrived before (bar.arrive twice)
  uint32_t expected = 0;          // threads; 0: all that live
  uint32_t population = 0;        // bar.red: how many predicates were true
  bool all = true, any = false;
};

inline constexpr uint32_t block_barriers = cluster_barrier + 1;

enum class BlockStatus : uint8_t { finished, running, at_grid_barrier };

struct Block {
  explicit Block(LaunchState& launch);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Makes this the block with that linear index, about to begin.
  void start(uint64_t linear_index);
  // Runs until the block has finished, waits at the grid's barrier, or has used up the slice.
  // Faults leave by longjmp to `escape`.
  BlockStatus run(uint64_t slice_instructions);
  [[nodiscard]] uint64_t executed() const;
  // After every warp had its turn: opens barriers if none made progress. A deadlock is a fault.
  BlockStatus status_after_round(bool progress);

  // After the turn of a warp that made progress: `rests` becomes the shortest sleep of such warps, 0 if one
  // does not sleep.
  static void note_turn(const Warp& warp, uint32_t& rests);
  // Whether the block gives its thread back because all sleep that could go on; a short sleep is a turn of
  // the others and no more, as it ends before the thread could be back.
  bool gives_way(uint32_t rests);

  // For handlers (through warp.h).
  void open_barriers();
  Frame* new_frame(Warp& warp, const Function& function);
  void release_frame(Warp& warp, Frame* frame);
  // Fills the frame's constants for this block.
  void prepare_frame(Warp& warp, Frame& frame);
  void fill_constant(const Warp& warp, std::byte* registers, const Constant& constant) const;

  LaunchState& launch;
  Dim3 index;
  uint64_t serial = 0;
  uint32_t threads = 0, warp_count = 0, live_threads = 0;
  uint32_t smid = 0;
  bool slice_over = false;  // something has taken as long as a slice may: run() returns
  // run() has returned because all warps that could go on sleep (nanosleep), at least so long. 0: they do
  // not.
  uint32_t rests_ns = 0;
  std::unique_ptr<Warp[]> warps;
  std::byte* shared = nullptr;
  std::byte* local = nullptr;
  BlockPages shared_pages, local_pages;
  std::vector<Barrier> barriers;
  uint32_t barriers_in_use = 0;  // one bit each
  uint64_t grid_generation = 0;  // of the grid barrier at which the block waits
  bool at_grid_barrier = false;
  uint32_t next_warp = 0;
  std::unique_ptr<BlockChecks> checks;  // null if the program has none

  std::unique_ptr<CompiledBlockState> compiled_state;  // tier 1's, made by it

 private:
  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<std::unique_ptr<std::byte[], void (*)(std::byte*)>> register_files_;
};

// warp_scheduler.cpp
bool run_warp(Warp& warp);  // false if no lane of it can run
void push_group(Warp& warp, const Group& group);
void resume(Warp& warp, const Group& group);  // makes it the running one
// For tier 1, which runs what it has no code for instruction by instruction.
bool begin_turn(Warp& warp);                 // true: lanes that wait longest go first
void step(Warp& warp);                       // one instruction of the running group
bool select_group(Warp& warp, bool rotate);  // chooses the group to run next; false if none can
void suspend(Warp& warp);                    // puts the running group among the others

}  // namespace softgpu
