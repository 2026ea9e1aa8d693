// The memory behind two rings: made by the worker, passed to the client over a Unix socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "wire/transport/socket.h"

namespace gpupool::wire {

/// A sealed memfd: it cannot be made smaller, so touching it never ends a process. One page of ring indices,
/// the ring of client to worker, the ring of worker to client.
class SharedMemory {
 public:
  static constexpr std::size_t header_bytes = 4096;
  static constexpr std::uint64_t default_ring_bytes = 1 << 20;
  static constexpr std::uint64_t max_ring_bytes = 64 << 20;

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  /// The worker's side. All of it is there at once, so that want of memory is an error here and no signal
  /// later.
  static std::optional<SharedMemory> make(std::uint64_t ring_bytes, std::string& error);
  /// The client's side: takes the descriptor and believes nothing of it.
  static std::optional<SharedMemory> map(Socket descriptor, std::uint64_t ring_bytes, std::string& error);

  [[nodiscard]] std::byte* at() const { return at_; }
  [[nodiscard]] std::uint64_t ring_bytes() const { return ring_bytes_; }

  /// Tells the other end of a Unix socket of the memory, and closes the own descriptor. Once.
  [[nodiscard]] bool send(int socket);
  /// What `send` sent. Blocks; nothing else may have been sent before it.
  static std::optional<SharedMemory> receive(int socket, std::string& error);

 private:
  SharedMemory(Socket descriptor, std::byte* at, std::uint64_t ring_bytes)
      : descriptor_(std::move(descriptor)), at_(at), ring_bytes_(ring_bytes) {}
  static std::optional<SharedMemory> map_checked(Socket descriptor, std::uint64_t ring_bytes,
                                                 std::string& error);

  Socket descriptor_;  // until it has been sent
  std::byte* at_;
  std::uint64_t ring_bytes_;
};

}  // namespace gpupool::wire
