// One message on a Unix socket, with at most one file descriptor.
#pragma once

#include <cstddef>
#include <span>

#include "wire/transport/socket.h"

namespace gpupool::wire {

/// The bytes go out as one message, with `descriptor` unless it is negative. False when they did not.
[[nodiscard]] bool send_with_descriptor(int socket, std::span<const std::byte> bytes, int descriptor);

/// One message of exactly that size. A descriptor that came with it is put into `descriptor` even when the
/// message is refused, so that it is closed; of more than one none is kept.
[[nodiscard]] bool receive_with_descriptor(int socket, std::span<std::byte> bytes, Socket& descriptor);

}  // namespace gpupool::wire
