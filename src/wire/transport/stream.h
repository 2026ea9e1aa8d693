// The ordered bytes between a client and its worker, whatever carries them.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

namespace gpupool::wire {

/// One end. One thread may send while another one receives; shut_down, readable, hung_up and
/// vanished may be called from any thread at any time. After a failure every later call fails.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// The peer sees the end of the stream.
  virtual ~Stream() = default;

  /// Sends everything; the array of parts is used up. False when the peer is gone. `more_follows`: the next
  /// send belongs to the same packet, so that a peer waiting for both is woken once.
  [[nodiscard]] virtual bool send_parts(iovec* parts, int count, bool more_follows) = 0;
  [[nodiscard]] bool send_parts(iovec* parts, int count) { return send_parts(parts, count, false); }
  [[nodiscard]] bool send(std::span<const std::byte> bytes, bool more_follows = false) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return send_parts(&part, 1, more_follows);
  }

  /// Blocks for at least one byte and takes at most `room`. 0: end of the stream or an error.
  [[nodiscard]] virtual std::size_t receive_some(void* into, std::size_t room) = 0;
  /// Blocks for exactly `size` bytes.
  [[nodiscard]] virtual bool receive(void* into, std::size_t size);

  static constexpr int for_ever = -1;
  /// Waits until there are bytes to receive, or the end or an error to be found out. False: not within
  /// `timeout_ms`.
  [[nodiscard]] virtual bool readable(int timeout_ms) = 0;
  /// Whether bytes have arrived that nobody has received yet.
  [[nodiscard]] virtual bool holds_unread() = 0;
  /// Whether the peer has closed its end.
  [[nodiscard]] virtual bool hung_up() const = 0;
  /// Whether the peer's system has answered nothing for so long that it is gone. Who waits for bytes need not
  /// ask: the wait ends then.
  [[nodiscard]] virtual bool vanished() const { return false; }

  /// Ends the stream in both directions: whoever waits in any function returns.
  virtual void shut_down() noexcept = 0;
  /// In a forked child: gives up what it inherited; the parent and the peer notice nothing.
  virtual void abandon_after_fork() noexcept = 0;

  /// For logs: what carries it, and to where where that is known. Never a secret.
  [[nodiscard]] virtual std::string description() const = 0;
};

}  // namespace gpupool::wire
