#include "softgpu/ptx/debug_info.h"

#include "softgpu/ptx/parser_state.h"

namespace softgpu::ptx {
namespace {

constexpr size_t max_string_bytes = 4096;  // a mangled name; hostile input may have more

// Reads numbers that stand on `line`; false if there are fewer than wanted.
bool read_numbers(TokenReader& in, int line, std::vector<uint64_t>& numbers, size_t wanted) {
  numbers.clear();
  while (numbers.size() < wanted && in.peek().kind == TokenKind::integer && in.peek().line == line) {
    numbers.push_back(in.next().bits);
  }
  return numbers.size() == wanted;
}

Location location_of(const std::vector<uint64_t>& numbers) {
  Location made;
  made.file = numbers[0];
  made.line = static_cast<uint32_t>(numbers[1]);
  made.column = static_cast<uint32_t>(numbers[2]);
  return made;
}

uint32_t add_location(DebugInfo& debug, const Location& made) {
  const auto index = static_cast<uint32_t>(debug.locations.size());
  debug.locations.push_back(made);
  debug.latest[{made.file, made.line, made.column}] = index;
  return index;
}

// The call's own location came in an earlier `.loc`, which tells where that was inlined in turn.
uint32_t find_or_add(DebugInfo& debug, const Location& wanted) {
  const auto found = debug.latest.find({wanted.file, wanted.line, wanted.column});
  return found != debug.latest.end() ? found->second : add_location(debug, wanted);
}

}  // namespace

// .file index "name" [, time, size]
void read_file_directive(TokenReader& in, DebugInfo& debug) {
  const int line = in.next().line;
  if (in.peek().kind == TokenKind::integer && in.peek().line == line) {
    const uint64_t index = in.next().bits;
    if (in.peek().kind == TokenKind::string && in.peek().line == line) debug.files[index] = in.peek().text;
  }
  in.lexer().skip_line(line);
}

// .loc file line column [, function_name label [+ number], inlined_at file line column]
void read_location_directive(TokenReader& in, DebugInfo& debug) {
  const int line = in.next().line;
  std::vector<uint64_t> numbers;
  bool well_formed = read_numbers(in, line, numbers, 3);
  if (well_formed) {
    Location made = location_of(numbers);
    while (in.peek().line == line && in.accept(',')) {
      well_formed = in.peek().kind == TokenKind::word && in.peek().line == line;
      if (!well_formed) break;
      const std::string_view attribute = in.next().text;
      if (attribute == "function_name" && in.peek().kind == TokenKind::word) {
        made.function = in.next().text;
        if (in.accept('+') && in.peek().kind == TokenKind::integer) {  // an offset has no label to find it by
          in.next();
          made.function = {};
        }
      } else if (attribute == "inlined_at" && read_numbers(in, line, numbers, 3)) {
        made.inlined_at = find_or_add(debug, location_of(numbers));
      } else {
        well_formed = false;
        break;
      }
    }
    debug.starts.push_back({line, add_location(debug, made)});
  }
  if (!well_formed) in.lexer().skip_line(line);
}

// .section name { ... }; of .debug_str the strings are kept, by their labels.
void read_section(TokenReader& in, DebugInfo& debug) {
  in.next();
  const bool has_strings = in.at_directive(".debug_str");
  while (!in.at_end() && !in.at('{')) in.next();
  in.expect('{');
  std::string_view label;
  bool open = false;  // the label's string has not ended
  for (int depth = 1; depth > 0;) {
    if (in.at_end()) in.fail("'}' expected");
    if (in.at('{')) ++depth;
    if (in.at('}')) --depth;
    const Token token = in.next();
    if (!has_strings) continue;
    if (token.kind == TokenKind::word && in.at(':')) {
      label = token.text;
      open = true;
    } else if (token.kind == TokenKind::integer && open) {
      std::string& text = debug.strings[label];
      open = token.bits != 0 && text.size() < max_string_bytes;
      if (open) text.push_back(static_cast<char>(token.bits));
    }
  }
}

void end_locations(int ptx_line, DebugInfo& debug) {
  if (debug.starts.empty() || debug.starts.back().location == no_location) return;
  debug.starts.push_back({ptx_line, no_location});
}

}  // namespace softgpu::ptx
