#include "image/device_entries.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "image/fatbin.h"

namespace gpupool::image {

std::vector<std::byte> entries_for(std::span<const std::byte> fatbin,
                                   std::span<const unsigned> capabilities) {
  constexpr std::size_t header_size = 16, entries_size_at = 8;
  const auto size = fatbin_size(fatbin);
  if (!size || *size != fatbin.size() || capabilities.empty()) return {};
  const std::vector<FatbinEntry> entries = fatbin_entries(fatbin);
  const auto fits = [&](const FatbinEntry& entry) {
    return entry.kind != FatbinEntry::Kind::machine_code ||
           std::ranges::any_of(capabilities, [&](unsigned c) { return entry.architecture / 10 == c / 10; });
  };
  std::size_t all = header_size, kept = 0, usable = 0;
  for (const FatbinEntry& entry : entries) {
    all += entry.whole.size();
    if (!fits(entry)) continue;
    kept += entry.whole.size();
    usable += entry.kind != FatbinEntry::Kind::other;
  }
  // A longer header, or a rest that is no entry, is of a format that is not known here.
  if (all != fatbin.size() || header_size + kept == all || usable == 0) return {};
  std::vector<std::byte> out;
  out.reserve(header_size + kept);
  out.assign(fatbin.begin(), fatbin.begin() + header_size);
  const std::uint64_t entries_size = kept;
  std::memcpy(out.data() + entries_size_at, &entries_size, sizeof(entries_size));
  for (const FatbinEntry& entry : entries) {
    if (fits(entry)) out.insert(out.end(), entry.whole.begin(), entry.whole.end());
  }
  return out;
}

}  // namespace gpupool::image
