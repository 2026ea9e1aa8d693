// What a worker's door answers to who knows the session's token, whatever the worker is stuck in.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "generated/wire/control.h"

namespace gpupool::client {

/// Where the worker of a session is, and what opens it.
struct Door {
  std::string address;
  std::array<std::uint8_t, 32> token{};  ///< never logged
  std::array<std::uint8_t, 16> session{};
};

/// What the session's devices are doing; nothing when the worker does not say so in time.
std::optional<wire::Inquiry> inquire(const Door& door, int timeout_ms);

/// Ends the worker's process. False: it did not confirm that in time.
bool end_session(const Door& door, int timeout_ms);

}  // namespace gpupool::client
