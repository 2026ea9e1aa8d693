// What the generated round-trip tests share: random values, comparison, and truncation at every byte.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "wire/bytes.h"

namespace gpupool::round_trip {

using Store = std::deque<std::vector<std::byte>>;

template <class T>
void fill(T& value, std::mt19937_64& random, Store& store) {
  if constexpr (std::is_same_v<T, std::span<const std::byte>>) {
    auto& bytes = store.emplace_back(random() % 40);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    value = bytes;
  } else {
    auto* at = reinterpret_cast<unsigned char*>(&value);
    for (std::size_t n = 0; n < sizeof(T); ++n) at[n] = static_cast<unsigned char>(random());
  }
}

template <class T>
bool same(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, std::span<const std::byte>>) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  } else {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  }
}

template <class T>
void check_truncations(const wire::Buffer& buffer) {
  const auto whole = buffer.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of the exact size, so that a read past its end is seen by AddressSanitizer.
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    wire::Reader in(part);
    T back{};
    CHECK_FALSE(T::decode(in, back));
  }
  std::vector<std::byte> longer(whole.begin(), whole.end());
  longer.push_back(std::byte{0});
  wire::Reader in(longer);
  T back{};
  CHECK_FALSE(T::decode(in, back));
}

/// What was changed is refused, or is another value that is written exactly so: nothing is read past the end,
/// and nothing that was sent is lost on the way.
template <class T>
void check_mutations(const wire::Buffer& buffer, std::mt19937_64& random) {
  const auto whole = buffer.bytes();
  for (int round = 0; round < 100; ++round) {
    std::vector<std::byte> bytes(whole.begin(), whole.end());
    for (std::uint64_t n = 1 + random() % 4; n > 0 && !bytes.empty(); --n) {
      const auto at = static_cast<std::ptrdiff_t>(random() % bytes.size());
      switch (random() % 4) {
        case 0:
          bytes[static_cast<std::size_t>(at)] = static_cast<std::byte>(random());
          break;
        case 1:
          bytes[static_cast<std::size_t>(at)] = std::byte{0xff};
          break;
        case 2:
          bytes.erase(bytes.begin() + at, bytes.end());
          break;
        default:
          bytes.insert(bytes.begin() + at, static_cast<std::byte>(random()));
          break;
      }
    }
    bytes.shrink_to_fit();  // so that a read past the end is outside the allocation
    wire::Reader in(bytes);
    T back{};
    if (!T::decode(in, back)) continue;
    const wire::Buffer again = wire::packed(back);
    CHECK(std::equal(bytes.begin(), bytes.end(), again.bytes().begin(), again.bytes().end()));
  }
}

}  // namespace gpupool::round_trip
