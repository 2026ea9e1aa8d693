// The one place for a client: hands authenticated connections to the thread that executes the session.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "wire/transport/stream.h"
#include "worker/lease/worker_state.h"

namespace gpupool::worker {

class ClientSeat {
 public:
  /// `changed` is called, from any thread and without locks held, after a client came or left.
  explicit ClientSeat(std::function<void()> changed) : changed_(std::move(changed)) {}

  struct View {
    bool connected = false;
    std::uint64_t connections = 0;   ///< so far
    bool said_goodbye = false;       ///< the last connection ended on purpose
    std::int64_t gone_since_ns = 0;  ///< CLOCK_BOOTTIME, when not connected
  };

  /// Seats an authenticated connection. The same process again takes the place of its own earlier connection
  /// (it knows best that it lost it), and so does anyone when the earlier one has hung up. But what a process
  /// said before its latest `connection` (0: not numbered) was only late. False: the seat is taken; `stream`
  /// is untouched.
  [[nodiscard]] bool offer(std::unique_ptr<wire::Stream>& stream, std::vector<std::byte> hello,
                           std::uint64_t pid, std::uint64_t connection = 0);

  /// `hello` is the HELLO frame, header and body, behind which `stream` is.
  using Serve = std::function<ServeEnd(wire::Stream& stream, std::span<const std::byte> hello)>;
  /// Has one client served after the other; never returns.
  [[noreturn]] void run(const Serve& serve);

  [[nodiscard]] View view() const;

 private:
  struct Client {
    std::unique_ptr<wire::Stream> stream;
    std::vector<std::byte> hello;
    std::uint64_t pid;
    std::uint64_t connection;
  };
  [[nodiscard]] bool is_late(std::uint64_t pid, std::uint64_t connection) const;  // precondition: mutex_ held

  std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::condition_variable arrival_;
  std::optional<Client> waiting_;
  wire::Stream* active_ = nullptr;
  std::uint64_t active_pid_ = 0;         // of the last one, when there is none
  std::uint64_t active_connection_ = 0;  // likewise
  View view_;
};

}  // namespace gpupool::worker
