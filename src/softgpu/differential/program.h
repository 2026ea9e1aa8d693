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
inline constexpr size_t most_threads = 160;  // at most, in all blocks
inline constexpr size_t table_entries = 96, table_bytes = (most_threads + table_entries) * 8;
inline constexpr size_t table_count = 6;  // f16, bf16, f32, f64, integers, plain bits
inline constexpr size_t scratch_offset = table_count * table_bytes, scratch_bytes = 64;
inline constexpr size_t counters_offset = scratch_offset + most_threads * scratch_bytes,
                        counter_bytes = 16 * 8;
inline constexpr size_t output_offset = counters_offset + counter_bytes, output_bytes = 320;
inline constexpr size_t approximate_offset = output_offset + most_threads * output_bytes;
// An approximate result with its operands: two operands, whether it was computed at all, the result.
inline constexpr size_t slot_count = 6, slot_bytes = 32, slots_bytes = slot_count * slot_bytes;
inline constexpr size_t total_bytes = approximate_offset + most_threads * slots_bytes;
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
