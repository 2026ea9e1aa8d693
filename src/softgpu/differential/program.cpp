#include "softgpu/differential/program.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "softgpu/differential/random.h"
#include "softgpu/differential/values.h"

namespace softgpu::differential {

std::string Program::text(const std::vector<bool>& kept) const {
  std::string all;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (kept.empty() || kept[i]) all += lines[i].text + "\n";
  }
  return all;
}

namespace {

// Is it there as a whole word?
bool mentions(const std::string& text, const std::string& word) {
  const auto part_of_word = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '%';
  };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !part_of_word(text[at - 1])) && (end == text.size() || !part_of_word(text[end])))
      return true;
  }
  return false;
}

// Is it a destination of one of the instructions? Destinations come first: d, d|p, {a, b}; a store's is an
// address.
bool writes(const std::string& text, const std::string& word) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    std::string instruction = text.substr(at, end - at);
    at = end + 1;
    const auto skip = [&](const char* what) { instruction.erase(0, instruction.find_first_not_of(what)); };
    skip(" \n");
    if (instruction.starts_with("@")) {
      instruction.erase(0, instruction.find(' '));
      skip(" ");
    }
    const size_t operands = instruction.find(' ');
    if (operands == std::string::npos) continue;
    instruction.erase(0, operands + 1);
    skip(" ");
    if (mentions(instruction.substr(0, instruction.find(instruction.starts_with("{") ? '}' : ',')), word) &&
        !instruction.starts_with("["))
      return true;
  }
  return false;
}

}  // namespace

void Program::drop_unused() {
  // A function is called by those behind it.
  for (size_t f = functions.size() - 1; f-- > 0;) {
    const auto [first, last] = functions[f];
    const bool called =
        std::any_of(lines.begin() + static_cast<ptrdiff_t>(last), lines.end(),
                    [&](const Line& line) { return mentions(line.text, "f" + std::to_string(f)); });
    if (called) continue;
    for (size_t i = first; i < last; ++i) lines[i] = Line{"", false, "", ""};
  }
  // The kernel initialises and shows the threads' own shared memory for the functions too.
  const std::string shared = "%own";
  const bool by_functions = std::any_of(
      lines.begin(), lines.begin() + static_cast<ptrdiff_t>(functions.back().first), [&](const Line& line) {
        return line.sets.empty() && line.shows.empty() && mentions(line.text, shared);
      });
  for (const auto& function : functions) {
    // No structured binding: lambdas below capture them, which clang 14 does not know.
    const size_t first = function.first, last = function.second;
    const bool kernel = first == functions.back().first;
    // From the end, so that what only dropped lines used goes too.
    const auto any_line = [&](size_t from, const std::string& what, const auto& does) {
      if (kernel && by_functions && what == shared) return true;
      return std::any_of(
          lines.begin() + static_cast<ptrdiff_t>(from), lines.begin() + static_cast<ptrdiff_t>(last),
          [&](const Line& line) { return !line.text.starts_with(".reg") && does(line, what); });
    };
    const auto changes = [](const Line& line, const std::string& what) {
      const bool statement = line.sets.empty() && line.shows.empty();
      // Memory is written through an address.
      const bool memory = what == "lm" || what == "%own";
      return statement && (memory ? mentions(line.text, what) : writes(line.text, what));
    };
    const auto uses = [](const Line& line, const std::string& what) { return mentions(line.text, what); };
    for (size_t i = first; i < last; ++i) {
      if (!lines[i].shows.empty() && !any_line(first, lines[i].shows, changes)) lines[i].text.clear();
    }
    for (size_t i = last; i-- > first;) {
      if (!lines[i].sets.empty() && !any_line(i + 1, lines[i].sets, uses)) lines[i].text.clear();
    }
  }
}

std::vector<std::byte> initial_memory(uint64_t seed) {
  Random random(seed ^ 0x5eed);
  std::vector<std::byte> memory(layout::total_bytes);
  const reference::FloatFormat* const formats[] = {&reference::f16_format,
                                                   &reference::bf16_format,
                                                   &reference::f32_format,
                                                   &reference::f64_format,
                                                   nullptr,
                                                   nullptr};
  for (size_t table = 0; table < layout::table_count; ++table) {
    std::byte* const begin = memory.data() + table * layout::table_bytes;
    const bool plain = table + 1 == layout::table_count;
    const auto bytes = formats[table] != nullptr ? static_cast<size_t>(formats[table]->total_bits()) / 8 : 8;
    for (size_t at = 0; at + bytes <= layout::table_bytes; at += bytes) {
      const uint64_t value = plain ? random.next()
                             : formats[table] != nullptr
                                 ? interesting_float(random, *formats[table])
                                 // Of mixed widths, so that a read of any width meets edges.
                                 : interesting_integer(random, random.one_of({16, 32, 64}));
      std::memcpy(begin + at, &value, bytes);
    }
  }
  for (size_t at = layout::scratch_offset; at < layout::counters_offset; at += 8) {
    const uint64_t value = random.next();
    std::memcpy(memory.data() + at, &value, 8);
  }
  return memory;
}

}  // namespace softgpu::differential
