// What the entries of a fat binary hold.
#include <algorithm>

#include "image/cubin.h"
#include "image/fatbin.h"

#if GPUPOOL_HAVE_LZ4
#include <lz4.h>
#endif
#if GPUPOOL_HAVE_ZSTD
#include <zstd.h>
#endif

namespace gpupool::image {
namespace {

constexpr std::uint64_t compressed_lz4 = 0x2000;
constexpr std::uint64_t compressed_zstd = 0x8000;
constexpr std::uint64_t largest_content = std::uint64_t{256} << 20;

std::optional<std::string> decompress_lz4([[maybe_unused]] const FatbinEntry& entry) {
#if GPUPOOL_HAVE_LZ4
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
#if GPUPOOL_HAVE_ZSTD
  const std::size_t frame = ZSTD_findFrameCompressedSize(entry.payload.data(), entry.payload.size());
  if (ZSTD_isError(frame)) return std::nullopt;
  std::string text(entry.uncompressed_size, '\0');
  const std::size_t written = ZSTD_decompress(text.data(), text.size(), entry.payload.data(), frame);
  if (!ZSTD_isError(written) && written == text.size()) return text;
#endif
  return std::nullopt;
}

// The content of the entry with the highest architecture among those that fit and can be read.
template <class Fits, class Read>
std::optional<std::string> best(std::span<const std::byte> fatbin, Fits fits, Read read) {
  const auto entries = fatbin_entries(fatbin);
  std::vector<const FatbinEntry*> usable;
  for (const FatbinEntry& entry : entries) {
    if (fits(entry)) usable.push_back(&entry);
  }
  std::stable_sort(usable.begin(), usable.end(),
                   [](const auto* a, const auto* b) { return a->architecture > b->architecture; });
  for (const FatbinEntry* entry : usable) {
    if (auto content = read(*entry)) return content;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> entry_content(const FatbinEntry& entry) {
  if ((entry.flags & (compressed_lz4 | compressed_zstd)) == 0) {
    return std::string(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
  }
  if (entry.uncompressed_size == 0 || entry.uncompressed_size > largest_content) return std::nullopt;
  return entry.flags & compressed_lz4 ? decompress_lz4(entry) : decompress_zstd(entry);
}

std::optional<std::string> ptx_text(const FatbinEntry& entry) {
  if (entry.kind != FatbinEntry::Kind::ptx) return std::nullopt;
  auto text = entry_content(entry);
  if (text) text->resize(std::min(text->find('\0'), text->size()));
  return text;
}

std::optional<std::string> best_ptx(std::span<const std::byte> fatbin, int capability) {
  const auto fits = [&](const FatbinEntry& entry) {
    return entry.kind == FatbinEntry::Kind::ptx && entry.architecture <= static_cast<unsigned>(capability);
  };
  return best(fatbin, fits, ptx_text);
}

std::optional<std::string> best_machine_code(std::span<const std::byte> fatbin, int capability) {
  const auto fits = [&](const FatbinEntry& entry) {
    return entry.kind == FatbinEntry::Kind::machine_code &&
           machine_code_fits(entry.architecture, static_cast<unsigned>(capability));
  };
  return best(fatbin, fits, entry_content);
}

}  // namespace gpupool::image
