#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace gpupool {
namespace {

alignas(16) constexpr std::uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(std::uint32_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap32(value) : value;
}

void compress_portable(std::uint32_t* state, const std::byte* blocks, std::size_t count) {
  for (; count != 0; --count, blocks += 64) {
    std::uint32_t w[64];
    for (int n = 0; n < 16; ++n) {
      std::memcpy(&w[n], blocks + 4 * n, 4);
      w[n] = big_endian(w[n]);
    }
    for (int n = 16; n < 64; ++n) {
      const std::uint32_t early = w[n - 15], late = w[n - 2];
      w[n] = w[n - 16] + w[n - 7] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ (early >> 3)) +
             (std::rotr(late, 17) ^ std::rotr(late, 19) ^ (late >> 10));
    }
    std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    std::uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int n = 0; n < 64; ++n) {
      const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                  ((e & f) ^ (~e & g)) + round_constants[n] + w[n];
      const std::uint32_t second =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#if defined(__x86_64__)
// The instructions keep the state as the words ABEF and CDGH and do two rounds each.
__attribute__((target("sha,sse4.1"))) void compress_sha_ni(std::uint32_t* state, const std::byte* blocks,
                                                           std::size_t count) {
  const __m128i to_big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  low = _mm_shuffle_epi32(low, 0xb1);
  high = _mm_shuffle_epi32(high, 0x1b);
  __m128i abef = _mm_alignr_epi8(low, high, 8);
  __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);
  for (; count != 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int n = 0; n < 4; ++n) {
      w[n] =
          _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 16 * n)), to_big_endian);
    }
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) {
      __m128i sum =
          _mm_add_epi32(w[n & 3], _mm_load_si128(reinterpret_cast<const __m128i*>(round_constants + 4 * n)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      sum = _mm_shuffle_epi32(sum, 0x0e);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, sum);
      if (n < 12) {  // four words of the schedule, for the round that is four further on
        const __m128i last = w[(n + 3) & 3];
        __m128i next = _mm_sha256msg1_epu32(w[n & 3], w[(n + 1) & 3]);
        next = _mm_add_epi32(next, _mm_alignr_epi8(last, w[(n + 2) & 3], 4));
        w[n & 3] = _mm_sha256msg2_epu32(next, last);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  low = _mm_shuffle_epi32(abef, 0x1b);
  high = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(high, low, 8));
}

bool has_sha_ni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1u << 29)) != 0 &&
         __builtin_cpu_supports("sse4.1") != 0;
}
#endif

Sha256::Compress best() {
  static const Sha256::Compress chosen =
      Sha256::accelerated() != nullptr ? Sha256::accelerated() : Sha256::portable();
  return chosen;
}

}  // namespace

Sha256::Compress Sha256::portable() {
  return &compress_portable;
}

Sha256::Compress Sha256::accelerated() {
#if defined(__x86_64__)
  return has_sha_ni() ? &compress_sha_ni : nullptr;
#else
  return nullptr;
#endif
}

Sha256::Sha256() : compress_(best()) {}

void Sha256::update(std::span<const std::byte> bytes) {
  const std::size_t held = length_ % block;
  length_ += bytes.size();
  if (held != 0) {
    const std::size_t part = std::min(block - held, bytes.size());
    std::copy_n(bytes.begin(), part, rest_.begin() + held);
    if (held + part < block) return;
    compress_(state_.data(), rest_.data(), 1);
    bytes = bytes.subspan(part);
  }
  if (const std::size_t whole = bytes.size() / block; whole != 0) {
    compress_(state_.data(), bytes.data(), whole);
    bytes = bytes.subspan(whole * block);
  }
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

Digest Sha256::finish() {
  const std::uint64_t bits = length_ * 8;
  std::size_t held = length_ % block;
  rest_[held++] = std::byte{0x80};
  if (held > block - 8) {
    std::fill(rest_.begin() + held, rest_.end(), std::byte{0});
    compress_(state_.data(), rest_.data(), 1);
    held = 0;
  }
  std::fill(rest_.begin() + held, rest_.end(), std::byte{0});
  for (int n = 0; n < 8; ++n) rest_[block - 1 - n] = static_cast<std::byte>(bits >> (8 * n));
  compress_(state_.data(), rest_.data(), 1);
  Digest digest;
  for (std::size_t n = 0; n < state_.size(); ++n) {
    const std::uint32_t word = big_endian(state_[n]);
    std::memcpy(digest.data() + 4 * n, &word, 4);
  }
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

}  // namespace gpupool
