#include "softgpu/exec/checks/fault_text.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "softgpu/exec/program/source_map.h"
#include "softgpu/exec/run/block.h"

namespace softgpu {

std::string text_of(const Dim3& place) {
  return "(" + std::to_string(place.x) + ", " + std::to_string(place.y) + ", " + std::to_string(place.z) +
         ")";
}

std::string thread_text(uint32_t thread, const Dim3& block) {
  return text_of({thread % block.x, thread / block.x % block.y, thread / block.x / block.y});
}

std::string kernel_text(const std::string& name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (plain == nullptr) return name;
  std::string text = plain;
  std::free(plain);
  // "void f<int>(int*)" -> "f<int>"; numba's "m::f[abi:v1][abi:...](Array<...>)" -> "m::f"
  uint32_t nested = 0;
  size_t begin = 0, end = text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++nested;
    if (text[i] == '>' && nested > 0) --nested;
    if (nested == 0 && text[i] == ' ') begin = i + 1;
    if (nested == 0 && (text[i] == '(' || text[i] == '[')) {
      end = i;
      break;
    }
  }
  return begin < end ? text.substr(begin, end - begin) : name;
}

std::string line_text(const ProgramParts& program, const Instruction* in) {
  if (in == nullptr || in->line == 0) return {};
  std::string ptx = "PTX line " + std::to_string(in->line);
  if (in->source != 0) ptx += " of source " + std::to_string(in->source + 1);
  std::string text;
  for (const SourcePlace& place : source_places(program, *in)) {
    if (place.line == 0) continue;
    text += (text.empty() ? "" : ", inlined at ") + (place.file.empty() ? "line " : place.file + ":") +
            std::to_string(place.line);
  }
  return text.empty() ? ptx : text + " (" + ptx + ")";
}

std::string where_text(const Block& block, uint32_t thread, const Instruction* in) {
  std::string text = "kernel " + kernel_text(block.launch.info->name) + ", block " + text_of(block.index) +
                     ", thread " + thread_text(thread, block.launch.request->block);
  if (const std::string line = line_text(*block.launch.program, in); !line.empty()) text += ", " + line;
  return text;
}

std::string shared_text(const Block& block, uint64_t offset) {
  const Kernel& kernel = *block.launch.kernel;
  for (const auto& [variable, start] : kernel.shared_offsets) {
    const SharedVariable& shared = block.launch.program->shared_variables[variable];
    if (offset - start < shared.bytes) {
      return offset == start ? shared.name : shared.name + " + " + std::to_string(offset - start);
    }
  }
  const uint64_t dynamic = kernel.dynamic_shared_offset;
  if (offset >= dynamic && offset < block.launch.shared_bytes) {
    return "dynamic shared memory + " + std::to_string(offset - dynamic);
  }
  return "shared memory + " + std::to_string(offset);
}

void report_race(const Warp& warp, const Instruction& in, uint32_t lane, bool writes,
                 const RaceDetector::Race& race) {
  const Block& block = *warp.block;
  const auto* const other = static_cast<const Instruction*>(race.where);
  const std::string other_line = line_text(*block.launch.program, other);
  std::string text = "race in shared memory: a thread ";
  text += writes ? "writes " : "reads ";
  text += shared_text(block, race.offset) + " (" + where_text(block, warp.index * warp_lanes + lane, &in) +
          ") and nothing orders that with thread " + thread_text(race.thread, block.launch.request->block) +
          ", which has " + (race.wrote ? "written" : "read") + " it";
  if (!other_line.empty()) text += " at " + other_line;
  block.launch.set_fault(Fault::check_failed, text + "; a barrier is missing between the two");
}

void report_unwritten(const Warp& warp, const Instruction& in, uint32_t lane, uint64_t offset,
                      uint32_t bytes) {
  const Block& block = *warp.block;
  block.launch.set_fault(Fault::check_failed,
                         "uninitialised read: of the " + std::to_string(bytes) + " bytes read, " +
                             shared_text(block, offset) + " was never written by this block (" +
                             where_text(block, warp.index * warp_lanes + lane, &in) + ")");
}

}  // namespace softgpu
