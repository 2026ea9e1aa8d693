// Fat binaries for tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "image/fatbin.h"

namespace gpupool::image {

template <class Number>
inline void append(std::string& to, Number value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// One entry as nvcc writes it: 64-byte header, payload padded to 8 bytes.
inline std::string entry(std::uint16_t kind, std::uint32_t architecture, const std::string& payload,
                         std::uint64_t flags = 0, std::uint64_t uncompressed = 0) {
  std::string padded = payload;
  padded.resize((payload.size() + 7) / 8 * 8);
  std::string bytes;
  append<std::uint16_t>(bytes, kind);
  append<std::uint16_t>(bytes, 0x101);
  append<std::uint32_t>(bytes, 64);
  append<std::uint64_t>(bytes, padded.size());
  append<std::uint32_t>(bytes, flags ? static_cast<std::uint32_t>(payload.size()) : 0);
  append<std::uint32_t>(bytes, 0);
  append<std::uint32_t>(bytes, 0);
  append<std::uint32_t>(bytes, architecture);
  append<std::uint64_t>(bytes, 0);
  append<std::uint64_t>(bytes, flags);
  append<std::uint64_t>(bytes, 0);
  append<std::uint64_t>(bytes, uncompressed);
  return bytes + padded;
}

inline std::string fatbin(const std::string& entries) {
  std::string bytes;
  append<std::uint32_t>(bytes, fatbin_magic);
  append<std::uint16_t>(bytes, 1);
  append<std::uint16_t>(bytes, 16);
  append<std::uint64_t>(bytes, entries.size());
  return bytes + entries;
}

inline std::span<const std::byte> view(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace gpupool::image
