#include "image/fatbin.h"

#include <algorithm>
#include <cstring>

namespace gpupool::image {
namespace {

constexpr std::size_t fatbin_header_size = 16;  // magic, version, header size, size of all entries
constexpr std::size_t entry_header_size = 64;

template <class Number>
Number read(std::span<const std::byte> bytes, std::size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

std::optional<std::size_t> fatbin_size(std::span<const std::byte> bytes) {
  if (bytes.size() < fatbin_header_size || read<std::uint32_t>(bytes, 0) != fatbin_magic) return std::nullopt;
  const std::size_t header = read<std::uint16_t>(bytes, 6);
  const std::uint64_t entries = read<std::uint64_t>(bytes, 8);
  if (header < fatbin_header_size || entries > (std::uint64_t{1} << 40)) return std::nullopt;
  return header + static_cast<std::size_t>(entries);
}

std::vector<FatbinEntry> fatbin_entries(std::span<const std::byte> bytes) {
  std::vector<FatbinEntry> entries;
  const auto size = fatbin_size(bytes);
  if (!size) return entries;
  const std::size_t header = read<std::uint16_t>(bytes, 6);
  if (header > bytes.size()) return entries;
  auto rest = bytes.subspan(header, std::min(*size, bytes.size()) - header);
  while (rest.size() >= entry_header_size) {
    const auto kind = read<std::uint16_t>(rest, 0);
    const std::size_t entry_header = read<std::uint32_t>(rest, 4);
    const auto padded = read<std::uint64_t>(rest, 8);
    const std::uint64_t compressed = read<std::uint32_t>(rest, 16);
    if (entry_header < entry_header_size || entry_header > rest.size() || padded > rest.size() - entry_header)
      break;
    FatbinEntry entry;
    entry.kind = kind == 1   ? FatbinEntry::Kind::ptx
                 : kind == 2 ? FatbinEntry::Kind::machine_code
                             : FatbinEntry::Kind::other;
    entry.architecture = read<std::uint32_t>(rest, 28);
    entry.flags = read<std::uint64_t>(rest, 40);
    entry.uncompressed_size = read<std::uint64_t>(rest, 56);
    const bool shorter = compressed != 0 && compressed <= padded;
    entry.payload = rest.subspan(entry_header, static_cast<std::size_t>(shorter ? compressed : padded));
    entry.whole = rest.first(entry_header + static_cast<std::size_t>(padded));
    entries.push_back(entry);
    rest = rest.subspan(entry_header + static_cast<std::size_t>(padded));
  }
  return entries;
}

}  // namespace gpupool::image
