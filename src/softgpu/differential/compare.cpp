#include <cstdio>
#include <cstring>

#include "softgpu/differential/engines.h"

namespace softgpu::differential {
namespace {

uint64_t word_at(const std::vector<std::byte>& memory, size_t offset) {
  uint64_t value;
  std::memcpy(&value, memory.data() + offset, 8);
  return value;
}

std::string hexadecimal(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// What lies at an offset of the arena, in words.
std::string place(size_t offset) {
  using namespace layout;
  const auto of_thread = [&](const char* what, size_t begin, size_t bytes) {
    return std::string(what) + " of thread " + std::to_string((offset - begin) / bytes) + ", byte " +
           std::to_string((offset - begin) % bytes);
  };
  if (offset < scratch_offset) return "table at " + std::to_string(offset);
  if (offset < counters_offset) return of_thread("scratch memory", scratch_offset, scratch_bytes);
  if (offset < output_offset) return "counter " + std::to_string((offset - counters_offset) / 8);
  if (offset < approximate_offset) return of_thread("output", output_offset, output_bytes);
  return of_thread("approximate results", approximate_offset, slots_bytes);
}

}  // namespace

std::optional<std::string> difference(const Program& program, const Outcome& expected, const Outcome& got) {
  if (!got.error.empty()) return got.error;
  for (size_t offset = 0; offset < layout::approximate_offset; offset += 8) {
    const uint64_t want = word_at(expected.memory, offset), have = word_at(got.memory, offset);
    if (want != have) {
      return place(offset) + ": " + hexadecimal(have) + " instead of " + hexadecimal(want);
    }
  }
  for (size_t thread = 0; thread < program.threads(); ++thread) {
    for (size_t slot = 0; slot < program.approximate.size(); ++slot) {
      const size_t at = layout::approximate_offset + thread * layout::slots_bytes + slot * layout::slot_bytes;
      for (size_t cell = 0; cell < 24; cell += 8) {
        if (word_at(expected.memory, at + cell) != word_at(got.memory, at + cell)) {
          return place(at + cell) + ": an operand differs";
        }
      }
      if (word_at(expected.memory, at + 16) == 0) continue;  // never computed
      const reference::Bits sources[2] = {word_at(got.memory, at), word_at(got.memory, at + 8)};
      const uint64_t result = word_at(got.memory, at + 24);
      if (!program.approximate[slot]->allows(sources, result)) {
        return program.approximate_name[slot] + " of " + hexadecimal(static_cast<uint64_t>(sources[0])) +
               ", " + hexadecimal(static_cast<uint64_t>(sources[1])) + " is " + hexadecimal(result) +
               ", outside of its bound about " + hexadecimal(word_at(expected.memory, at + 24));
      }
    }
  }
  return std::nullopt;
}

}  // namespace softgpu::differential
