// Sentences about what went wrong in a kernel: who, where in the program, which memory.
#pragma once

#include <cstdint>
#include <string>

#include "softgpu/exec/checks/race_detector.h"
#include "softgpu/exec/program/engine.h"

namespace softgpu {

struct Block;
struct Instruction;
struct ProgramParts;
struct Warp;

// "(1, 0, 0)"
[[nodiscard]] std::string text_of(const Dim3& place);
// "(5, 0, 0)": the indices of the thread with that number in a block of this size.
[[nodiscard]] std::string thread_text(uint32_t thread, const Dim3& block);
// A kernel's name as its author wrote it: demangled, without parameters and tags.
[[nodiscard]] std::string kernel_text(const std::string& name);
// "saxpy.py:12 (PTX line 40)"; empty if nothing is known.
[[nodiscard]] std::string line_text(const ProgramParts& program, const Instruction* in);
// "kernel k, block (0, 0, 0), thread (5, 0, 0), saxpy.py:12 (PTX line 40)"
[[nodiscard]] std::string where_text(const Block& block, uint32_t thread, const Instruction* in);
// "tile + 12": the offset in shared memory by the name of the variable that lies there.
[[nodiscard]] std::string shared_text(const Block& block, uint64_t offset);

// Each makes its sentence the launch's fault, if it is the first. `thread` numbers count in the block.
void report_race(const Warp& warp, const Instruction& in, uint32_t lane, bool writes,
                 const RaceDetector::Race& race);
void report_unwritten(const Warp& warp, const Instruction& in, uint32_t lane, uint64_t offset,
                      uint32_t bytes);

}  // namespace softgpu
