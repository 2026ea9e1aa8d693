#include "softgpu/driver/fatbin.h"

#include <algorithm>
#include <cstring>

#if SOFTGPU_HAVE_LZ4
#include <lz4.h>
#endif
#if SOFTGPU_HAVE_ZSTD
#include <zstd.h>
#endif

namespace softgpu::driver {
namespace {

constexpr std::uint64_t kCompressedLz4 = 0x2000;
constexpr std::uint64_t kCompressedZstd = 0x8000;
constexpr std::size_t kHeaderSize = 16;  // magic, version, header size, size of all entries
constexpr std::size_t kEntryHeaderSize = 64;
constexpr std::uint64_t kLargestText = std::uint64_t{256} << 20;

template <class Number>
Number read(std::span<const std::byte> bytes, std::size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::optional<std::string> decompress_lz4([[maybe_unused]] const FatbinEntry& entry) {
#if SOFTGPU_HAVE_LZ4
  std::string text(entry.uncompressed_size, '\0');
  // The payload is padded behind the block, so the decoder is told where the output ends, not the input.
  const int written = LZ4_decompress_safe_partial(
      reinterpret_cast<const char*>(entry.payload.data()), text.data(),
      static_cast<int>(entry.payload.size()), static_cast<int>(text.size()), static_cast<int>(text.size()));
  if (written == static_cast<int>(text.size())) return text;
#endif
  return std::nullopt;
}

std::optional<std::string> decompress_zstd([[maybe_unused]] const FatbinEntry& entry) {
#if SOFTGPU_HAVE_ZSTD
  const std::size_t frame = ZSTD_findFrameCompressedSize(entry.payload.data(), entry.payload.size());
  if (ZSTD_isError(frame)) return std::nullopt;
  std::string text(entry.uncompressed_size, '\0');
  const std::size_t written = ZSTD_decompress(text.data(), text.size(), entry.payload.data(), frame);
  if (!ZSTD_isError(written) && written == text.size()) return text;
#endif
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> fatbin_size(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderSize || read<std::uint32_t>(bytes, 0) != kFatbinMagic) return std::nullopt;
  const std::size_t header = read<std::uint16_t>(bytes, 6);
  const std::uint64_t entries = read<std::uint64_t>(bytes, 8);
  if (header < kHeaderSize || entries > (std::uint64_t{1} << 40)) return std::nullopt;
  return header + static_cast<std::size_t>(entries);
}

std::vector<FatbinEntry> fatbin_entries(std::span<const std::byte> bytes) {
  std::vector<FatbinEntry> entries;
  const auto size = fatbin_size(bytes);
  if (!size) return entries;
  const std::size_t header = read<std::uint16_t>(bytes, 6);
  if (header > bytes.size()) return entries;
  auto rest = bytes.subspan(header, std::min(*size, bytes.size()) - header);
  while (rest.size() >= kEntryHeaderSize) {
    const auto kind = read<std::uint16_t>(rest, 0);
    const std::size_t entry_header = read<std::uint32_t>(rest, 4);
    const auto padded = read<std::uint64_t>(rest, 8);
    const std::uint64_t compressed = read<std::uint32_t>(rest, 16);
    if (entry_header < kEntryHeaderSize || entry_header > rest.size() || padded > rest.size() - entry_header)
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
    entries.push_back(entry);
    rest = rest.subspan(entry_header + static_cast<std::size_t>(padded));
  }
  return entries;
}

std::optional<std::string> ptx_text(const FatbinEntry& entry) {
  if (entry.kind != FatbinEntry::Kind::ptx) return std::nullopt;
  std::optional<std::string> text;
  if (entry.flags & (kCompressedLz4 | kCompressedZstd)) {
    if (entry.uncompressed_size == 0 || entry.uncompressed_size > kLargestText) return std::nullopt;
    text = entry.flags & kCompressedLz4 ? decompress_lz4(entry) : decompress_zstd(entry);
  } else {
    text.emplace(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
  }
  if (text) text->resize(std::min(text->find('\0'), text->size()));
  return text;
}

std::optional<std::string> best_ptx(std::span<const std::byte> fatbin, int capability) {
  const auto entries = fatbin_entries(fatbin);
  std::vector<const FatbinEntry*> usable;
  for (const FatbinEntry& entry : entries) {
    if (entry.kind == FatbinEntry::Kind::ptx && entry.architecture <= static_cast<unsigned>(capability)) {
      usable.push_back(&entry);
    }
  }
  std::stable_sort(usable.begin(), usable.end(),
                   [](const auto* a, const auto* b) { return a->architecture > b->architecture; });
  for (const FatbinEntry* entry : usable) {
    if (auto text = ptx_text(*entry)) return text;
  }
  return std::nullopt;
}

}  // namespace softgpu::driver
