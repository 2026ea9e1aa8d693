// SHA-256 (FIPS 180-4), with the processor's instructions for it where they are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gpupool {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  /// Of everything that was given; the object is spent.
  [[nodiscard]] Digest finish();

  /// How whole blocks of 64 bytes change the state.
  using Compress = void (*)(std::uint32_t* state, const std::byte* blocks, std::size_t count);

  Sha256();
  /// For tests: with one certain implementation.
  explicit Sha256(Compress compress) : compress_(compress) {}
  static Compress portable();
  /// Null where this processor or compiler has no such instructions.
  static Compress accelerated();

 private:
  static constexpr std::size_t block = 64;

  Compress compress_;
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, block> rest_{};
  std::uint64_t length_ = 0;
};

/// Two digits for each byte.
[[nodiscard]] std::string hex(std::span<const std::byte> bytes);

[[nodiscard]] Digest sha256(std::span<const std::byte> bytes);

}  // namespace gpupool
