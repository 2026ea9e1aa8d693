// Handles that the client mints: kind, generation and index in one opaque 64-bit value.
//
// Bits 48..55 hold the kind, so a handle is never a user-space address and never one of the driver's special
// stream values (0, 1, 2). The generation tells a destroyed handle from its successor in the same slot.
#pragma once

#include <cstdint>

#include "generated/wire/kinds.h"

namespace gpupool::wire {

struct Handle {
  Kind kind = Kind::none;
  std::uint16_t generation = 0;
  std::uint32_t index = 0;

  [[nodiscard]] constexpr std::uint64_t value() const {
    return (static_cast<std::uint64_t>(kind) << 48) | (static_cast<std::uint64_t>(generation) << 32) | index;
  }
  [[nodiscard]] static constexpr Handle from(std::uint64_t value) {
    const auto kind = value >> 48;
    if (kind == 0 || kind >= static_cast<std::uint64_t>(Kind::count)) return {};
    return {static_cast<Kind>(kind), static_cast<std::uint16_t>(value >> 32),
            static_cast<std::uint32_t>(value)};
  }
};

/// A session's handles of one kind. Bounds the tables of the worker against a hostile client.
inline constexpr std::uint32_t max_handles = 1u << 20;

}  // namespace gpupool::wire
