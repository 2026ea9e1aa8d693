// Reader of CUDA fat binaries: the container in which nvcc packs PTX and machine code for several
// architectures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpupool::image {

inline constexpr std::uint32_t fatbin_wrapper_magic = 0x466243B1;
inline constexpr std::uint32_t fatbin_magic = 0xBA55ED50;

struct FatbinEntry {
  enum class Kind { ptx, machine_code, other };
  Kind kind = Kind::other;
  unsigned architecture = 0;  // 75, 90, 120, ...
  std::uint64_t flags = 0;
  std::span<const std::byte> whole;     // header and payload with its padding
  std::span<const std::byte> payload;   // as stored, maybe compressed
  std::uint64_t uncompressed_size = 0;  // bytes, for compressed payloads
};

// Length of the fat binary that begins here (header and entries), or nothing if `bytes` does not hold its
// header.
std::optional<std::size_t> fatbin_size(std::span<const std::byte> bytes);

// The entries of one fat binary, for as far as they are well formed; reads nothing outside `bytes`.
std::vector<FatbinEntry> fatbin_entries(std::span<const std::byte> bytes);

// What an entry holds, decompressed; nothing if it is damaged, too large (256 MiB), or compressed by a method
// this build does not have.
std::optional<std::string> entry_content(const FatbinEntry& entry);

// The text of a PTX entry, without trailing NULs; nothing under the same conditions.
std::optional<std::string> ptx_text(const FatbinEntry& entry);

// PTX of the highest architecture that is at most `capability` (e.g. 120).
std::optional<std::string> best_ptx(std::span<const std::byte> fatbin, int capability);

// Machine code of the highest architecture that runs on `capability`.
std::optional<std::string> best_machine_code(std::span<const std::byte> fatbin, int capability);

}  // namespace gpupool::image
