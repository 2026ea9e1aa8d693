// A ring of bytes in memory that is shared with another process, which is not trusted.
//
// Each end keeps its own position in its own memory and writes it into the shared memory only for the other
// end to see. What the other end wrote is checked whenever it is read: a position that cannot be makes the
// ring broken, and never makes an access outside of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpupool::wire {

/// How one ring lies in shared memory. Positions count bytes since the beginning and never wrap.
struct RingIndices {
  alignas(64) std::atomic<std::uint64_t> head;  ///< written by the writer: bytes put in
  std::atomic<std::uint32_t> reader_asleep;     ///< 1: the reader sleeps on this word until there are bytes
  alignas(64) std::atomic<std::uint64_t> tail;  ///< written by the reader: bytes taken out
  std::atomic<std::uint32_t> writer_asleep;     ///< 1: the writer sleeps on this word until there is room
};
static_assert(sizeof(RingIndices) == 128);

/// A large copy is handed over in pieces, so that both ends copy at the same time.
inline constexpr std::size_t ring_piece = 128 << 10;

class RingWriter {
 public:
  /// `size` is a power of two; a fresh ring.
  RingWriter(RingIndices& shared, std::byte* data, std::uint64_t size)
      : shared_(shared), data_(data), size_(size) {}

  /// Puts in as much as there is room for, at most a piece, and says how much that was.
  std::size_t write_some(const void* from, std::size_t size);
  /// Wakes the reader if it sleeps. After one or more writes.
  void wake_reader();
  /// Bytes that fit now; from the thread that writes.
  [[nodiscard]] std::uint64_t room();
  /// The reader wrote a position that cannot be.
  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::atomic<std::uint32_t>& sleep_word() { return shared_.writer_asleep; }

 private:
  RingIndices& shared_;
  std::byte* data_;
  std::uint64_t size_;
  std::atomic<std::uint64_t> head_{0};
  std::atomic<bool> broken_{false};
};

class RingReader {
 public:
  RingReader(RingIndices& shared, const std::byte* data, std::uint64_t size)
      : shared_(shared), data_(data), size_(size) {}

  /// Takes out what is there, at most `room` and a piece, and says how much that was.
  std::size_t read_some(void* into, std::size_t room);
  /// Bytes that are there now; from any thread.
  [[nodiscard]] std::uint64_t available();
  /// The writer wrote a position that cannot be.
  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::atomic<std::uint32_t>& sleep_word() { return shared_.reader_asleep; }

 private:
  void wake_writer(std::uint64_t free);

  RingIndices& shared_;
  const std::byte* data_;
  std::uint64_t size_;
  std::atomic<std::uint64_t> tail_{0};
  std::atomic<bool> broken_{false};
};

}  // namespace gpupool::wire
