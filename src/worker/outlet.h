// The way out to a client, shared by all threads that have something to say to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/stream.h"

namespace gpupool::worker {

/// Bytes that follow a frame. `send` returns false when the connection is lost or the data could not be
/// produced; the connection is then closed, because the announced bytes cannot be taken back.
struct Payload {
  std::uint64_t size = 0;
  const std::byte* memory = nullptr;  ///< the bytes themselves, where they can be sent as they lie; else null
  std::function<bool(wire::Stream&)> send;  ///< used when `memory` is null
};

/// Frames go out whole, one after the other: the lock is held while one is sent, however long the client
/// takes. After a failure the stream is shut down, so that who reads from it learns of it.
class Outlet {
 public:
  explicit Outlet(wire::Stream& stream) : stream_(stream) {}

  /// `frame` is a whole frame without its payload.
  bool send(std::span<const std::byte> frame, const Payload& payload = {});

  /// A frame that answers nothing: completions, copied bytes, text that kernels printed. `fields` is its
  /// body.
  bool push(wire::Control message, std::span<const std::byte> fields, const Payload& payload = {});

  void shut_down() { stream_.shut_down(); }

 private:
  bool send_locked(std::span<const std::byte> frame, const Payload& payload);

  wire::Stream& stream_;
  std::mutex mutex_;
};

}  // namespace gpupool::worker
