#include "softgpu/exec/program/source_map.h"

#include <algorithm>

#include "softgpu/exec/program/program.h"

namespace softgpu {

SourceMap::SourceMap(const ptx::DebugInfo& debug) : starts_(debug.starts) {
  places_.reserve(debug.locations.size());
  for (const ptx::Location& location : debug.locations) {
    SourcePlace& place = places_.emplace_back();
    place.line = location.line;
    place.column = location.column;
    if (location.inlined_at != ptx::no_location) place.inlined_at = location.inlined_at + 1;
    if (const auto file = debug.files.find(location.file); file != debug.files.end())
      place.file = file->second;
    if (const auto name = debug.strings.find(location.function); name != debug.strings.end()) {
      place.function = name->second;
    }
  }
}

std::vector<SourcePlace> SourceMap::find(uint32_t ptx_line) const {
  std::vector<SourcePlace> chain;
  const auto after =
      std::upper_bound(starts_.begin(), starts_.end(), static_cast<int64_t>(ptx_line),
                       [](int64_t line, const ptx::LocationStart& start) { return line < start.ptx_line; });
  if (after == starts_.begin() || std::prev(after)->location == ptx::no_location) return chain;
  // A call stands before what is inlined there, so that the chain has an end; the bound is for hostile input.
  constexpr size_t max_inline_depth = 64;
  for (uint32_t next = std::prev(after)->location + 1; next != 0 && chain.size() < max_inline_depth;) {
    chain.push_back(places_[next - 1]);
    next = chain.back().inlined_at;
  }
  return chain;
}

std::vector<SourcePlace> source_places(const ProgramParts& program, const Instruction& instruction) {
  if (instruction.source >= program.source_maps.size()) return {};
  return program.source_maps[instruction.source].find(instruction.line);
}

}  // namespace softgpu
