// Random values that are often almost right: small numbers, handles that may exist, arena addresses.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "wire/handle.h"

namespace gpupool::random_fill {

class Source {
 public:
  explicit Source(std::uint64_t seed) : random(seed) {}

  std::uint64_t number() {
    switch (random() % 6) {
      case 0:
        return random() % 4;
      case 1:
        return random() % 5000;
      case 2:
      case 3: {
        const auto kind =
            static_cast<wire::Kind>(1 + random() % (static_cast<std::uint64_t>(wire::Kind::count) - 1));
        return wire::Handle{kind, 0, static_cast<std::uint32_t>(random() % 4)}.value();
      }
      case 4:
        return arena + (random() % 16 << 21) + (random() % 4 == 0 ? random() % 4096 : 0);
      default:
        return random();
    }
  }

  /// Mostly a handle of the kind that is wanted.
  std::uint64_t handle(wire::Kind kind) {
    if (random() % 4 == 0) return number();
    return wire::Handle{kind, 0, static_cast<std::uint32_t>(random() % 4)}.value();
  }

  std::mt19937_64 random;
  std::deque<std::vector<std::byte>> bytes;  ///< what the spans of a message refer to
  std::uint64_t arena = 0;
};

template <class T>
void fill(T& value, Source& source) {
  if constexpr (std::is_same_v<T, std::span<const std::byte>>) {
    if (source.bytes.size() > 16) source.bytes.pop_front();
    auto& bytes = source.bytes.emplace_back(source.random() % 5 == 0 ? 0 : source.random() % 200);
    for (auto& byte : bytes) byte = static_cast<std::byte>(source.random() % 3 == 0 ? 0 : source.random());
    value = bytes;
  } else if constexpr (std::is_integral_v<T>) {
    value = static_cast<T>(source.number());
  } else {
    // A struct: words of it are likely numbers, handles and addresses.
    auto* const at = reinterpret_cast<unsigned char*>(&value);
    for (std::size_t n = 0; n < sizeof(T); n += sizeof(std::uint64_t)) {
      const bool pair = source.random() % 2 == 0;  // two small numbers: enumerations and counts
      const std::uint64_t word = pair ? (source.random() % 5 << 32 | source.random() % 5) : source.number();
      std::memcpy(at + n, &word, std::min(sizeof(word), sizeof(T) - n));
    }
  }
}

}  // namespace gpupool::random_fill
