// What `.file`, `.loc` and the section .debug_str say about where instructions come from.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace softgpu::ptx {

class TokenReader;

inline constexpr uint32_t no_location = ~0u;

// A place in the source that the compiler read, not in the PTX.
struct Location {
  uint64_t file = 0;  // the number that `.file` gives it
  uint32_t line = 0, column = 0;
  uint32_t inlined_at = no_location;  // index of the location of the call, if the code was inlined
  std::string_view function;          // label of the inlined function's name in .debug_str, or empty
};

// From this line of the PTX on (up to the next entry) instructions belong to the location.
struct LocationStart {
  int ptx_line;
  uint32_t location;  // index, or no_location
};

struct DebugInfo {
  std::map<uint64_t, std::string_view> files;
  std::unordered_map<std::string_view, std::string> strings;  // label in .debug_str -> text
  std::vector<Location> locations;
  std::vector<LocationStart> starts;                   // in the order of the PTX
  std::map<std::array<uint64_t, 3>, uint32_t> latest;  // file, line, column -> the newest such location
};

// Each reads one directive, its name included. A malformed one is passed over: no program fails to load
// for its debug information.
void read_file_directive(TokenReader& in, DebugInfo& debug);
void read_location_directive(TokenReader& in, DebugInfo& debug);
void read_section(TokenReader& in, DebugInfo& debug);
// The end of a function: what follows has no location until the next `.loc`.
void end_locations(int ptx_line, DebugInfo& debug);

}  // namespace softgpu::ptx
