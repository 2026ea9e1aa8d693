#include "softgpu/differential/program.h"

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

std::vector<std::byte> initial_memory(uint64_t seed) {
  Random random(seed ^ 0x5eed);
  std::vector<std::byte> memory(layout::kBytes);
  const reference::FloatFormat* const formats[] = {&reference::kF16, &reference::kBf16, &reference::kF32,
                                                   &reference::kF64, nullptr,           nullptr};
  for (size_t table = 0; table < layout::kTables; ++table) {
    std::byte* const begin = memory.data() + table * layout::kTableBytes;
    const bool plain = table + 1 == layout::kTables;
    const auto bytes = formats[table] != nullptr ? static_cast<size_t>(formats[table]->total_bits()) / 8 : 8;
    for (size_t at = 0; at + bytes <= layout::kTableBytes; at += bytes) {
      const uint64_t value = plain ? random.next()
                             : formats[table] != nullptr
                                 ? interesting_float(random, *formats[table])
                                 // Of mixed widths, so that a read of any width meets edges.
                                 : interesting_integer(random, random.one_of({16, 32, 64}));
      std::memcpy(begin + at, &value, bytes);
    }
  }
  for (size_t at = layout::kScratch; at < layout::kCounters; at += 8) {
    const uint64_t value = random.next();
    std::memcpy(memory.data() + at, &value, 8);
  }
  return memory;
}

}  // namespace softgpu::differential
