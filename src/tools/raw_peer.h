// What the wire itself can do: a second process behind a plain TCP socket on loopback, with nothing in
// between.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "wire/transport/socket.h"

namespace gpupool::bench {

/// The child process answers until the object is destroyed. Throws std::runtime_error when it cannot be
/// started. Sockets have the same options as those of the data plane.
class RawPeer {
 public:
  /// Sizes in bytes: of a question and its answer, and of a stream.
  RawPeer(std::size_t question, std::size_t answer, std::size_t stream);
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  void ping_pong();
  /// Sends the stream and waits until the peer has read all of it.
  void stream_up();
  /// Asks for the stream and reads all of it.
  void stream_down();

 private:
  wire::Socket socket_;
  pid_t child_ = -1;
  std::vector<std::byte> question_, answer_, stream_;
};

}  // namespace gpupool::bench
