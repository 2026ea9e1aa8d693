// Where instructions come from: a line of PTX -> the file and line that its compiler read (`.loc`, `.file`).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "softgpu/ptx/debug_info.h"

namespace softgpu {

struct ProgramParts;
struct Instruction;

struct SourcePlace {
  std::string file;         // as `.file` names it; empty if nothing does
  uint32_t line = 0;        // 0: unknown
  uint32_t column = 0;      // 0: unknown
  std::string function;     // the inlined function that the line belongs to, mangled; empty if not told
  uint32_t inlined_at = 0;  // 1 + index of the place of the call, 0 if not inlined
};

// The places of one PTX source. Owns its text: the PTX is gone when a kernel runs.
class SourceMap {
 public:
  SourceMap() = default;
  explicit SourceMap(const ptx::DebugInfo& debug);

  // The place of what stands on this line of the PTX, innermost first, then where that was inlined, and so on
  // outwards. Empty if the PTX does not say.
  [[nodiscard]] std::vector<SourcePlace> find(uint32_t ptx_line) const;
  [[nodiscard]] bool empty() const { return starts_.empty(); }

 private:
  std::vector<SourcePlace> places_;
  std::vector<ptx::LocationStart> starts_;  // sorted
};

// The same for an instruction of a linked program.
[[nodiscard]] std::vector<SourcePlace> source_places(const ProgramParts& program,
                                                     const Instruction& instruction);

}  // namespace softgpu
