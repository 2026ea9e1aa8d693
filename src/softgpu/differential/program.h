// A random program, with what is needed to run it, to compare what it did and to make it smaller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "softgpu/exec/program/engine.h"
#include "softgpu/reference/operation.h"

namespace softgpu::differential {

// Global memory of every launch. Tables hold operands of one type, of which a thread reads its own stretch.
namespace layout {
inline constexpr size_t kThreads = 160;  // at most, in all blocks
inline constexpr size_t kTableEntries = 96, kTableBytes = (kThreads + kTableEntries) * 8;
inline constexpr size_t kTables = 6;  // f16, bf16, f32, f64, integers, plain bits
inline constexpr size_t kScratch = kTables * kTableBytes, kScratchBytes = 64;
inline constexpr size_t kCounters = kScratch + kThreads * kScratchBytes, kCounterBytes = 16 * 8;
inline constexpr size_t kOutput = kCounters + kCounterBytes, kOutputBytes = 320;
inline constexpr size_t kApproximate = kOutput + kThreads * kOutputBytes;
// An approximate result with its operands: two operands, whether it was computed at all, the result.
inline constexpr size_t kSlots = 6, kSlotBytes = 32, kSlotsBytes = kSlots * kSlotBytes;
inline constexpr size_t kBytes = kApproximate + kThreads * kSlotsBytes;
}  // namespace layout

struct Line {
  std::string text;
  bool removable = true;  // by itself, without making the program undefined in general
  // What the line is there for: to set it before the statements, or to show it behind them. Empty: it is one
  // of the statements, or belongs to no such thing.
  std::string sets, shows;
};

struct Program {
  uint64_t seed = 0;
  std::vector<Line> lines;
  // Stretches of lines that belong together and may be left out as a whole: [first, last).
  std::vector<std::pair<size_t, size_t>> groups;
  std::vector<std::pair<size_t, size_t>> functions;  // the last is the kernel; the others are f0, f1, ...
  Dim3 grid, block;
  uint32_t uniform[2] = {};                              // parameters
  std::vector<const reference::Operation*> approximate;  // of each slot
  std::vector<std::string> approximate_name;

  // Empties what sets something that no statement uses, what shows something that none writes, and functions
  // that nothing calls.
  void drop_unused();

  [[nodiscard]] size_t threads() const {
    return size_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z;
  }
  // The PTX of the lines that `kept` says (all, if it is empty).
  [[nodiscard]] std::string text(const std::vector<bool>& kept = {}) const;
};

// What the arena holds before each run.
[[nodiscard]] std::vector<std::byte> initial_memory(uint64_t seed);

}  // namespace softgpu::differential
