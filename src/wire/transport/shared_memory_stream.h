// A stream between two processes of one machine: two rings in shared memory, and a Unix socket that tells
// when the other process is gone.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/patience.h"
#include "wire/transport/shared_memory.h"
#include "wire/transport/shared_ring.h"
#include "wire/transport/stream.h"

namespace gpupool::wire {

class SharedMemoryStream final : public Stream {
 public:
  enum class Side { client, worker };
  SharedMemoryStream(Socket socket, SharedMemory memory, Side side);
  ~SharedMemoryStream() override;

  /// The worker's end: makes the memory and tells the client of it over `socket`. Null and `error` on
  /// failure.
  static std::unique_ptr<Stream> offer(Socket& socket, std::string& error,
                                       std::uint64_t ring_bytes = SharedMemory::default_ring_bytes);

  using Stream::send_parts;
  [[nodiscard]] bool send_parts(iovec* parts, int count, bool more_follows) override;
  [[nodiscard]] std::size_t receive_some(void* into, std::size_t room) override;
  [[nodiscard]] bool readable(int timeout_ms) override;
  [[nodiscard]] bool holds_unread() override { return reader_.available() > 0; }
  [[nodiscard]] bool hung_up() const override;
  void shut_down() noexcept override;
  void abandon_after_fork() noexcept override;
  [[nodiscard]] std::string description() const override { return "shared memory"; }

 private:
  void watch();
  void end() noexcept;
  template <class Ready>
  bool wait(std::atomic<std::uint32_t>& word, Patience& patience, int timeout_ms, Ready ready);

  Socket socket_;  // carries nothing any more; it hangs up when its other end is closed
  SharedMemory memory_;
  RingReader reader_;
  RingWriter writer_;
  Patience reading_, writing_;
  std::atomic<bool> ended_{false};
  std::thread watcher_;
};

}  // namespace gpupool::wire
