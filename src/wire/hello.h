// The first frame of a connection.
#pragma once

#include <array>
#include <cstdint>

#include "generated/wire/control.h"

namespace gpupool::wire {

inline constexpr std::uint32_t hello_magic = 0x4c505047;  // "GPPL"
inline constexpr std::uint32_t protocol_version = 3;

/// Each device of a session has so many addresses. ThreadSanitizer leaves a program little of the address
/// space.
#ifdef __SANITIZE_THREAD__
inline constexpr std::uint64_t arena_span = std::uint64_t{1} << 36;
#else
inline constexpr std::uint64_t arena_span = std::uint64_t{1} << 40;
#endif

/// Body of the first frame of a connection. Of fixed size, because it is read from a stranger. Reply:
/// ReplyHeader
/// + HelloReply.
struct HelloBody {
  std::uint32_t magic;
  std::uint32_t version;
  std::array<std::uint8_t, 32> token;
  std::array<std::uint8_t, 16> session;
  std::uint64_t pid;         ///< of the client process, on its own machine
  std::uint64_t arena_base;  ///< where the client would like the device address arena; 0 = no wish
  // To go on after a broken connection; a first one has zeros in the last two.
  std::uint64_t
      connection;       ///< +1 per connection of this process: an older one never takes the place of a newer
  std::uint64_t sent;   ///< number of the last frame made
  std::uint64_t taken;  ///< number of the last push taken in
};
static_assert(sizeof(HelloBody) == 96);

}  // namespace gpupool::wire
