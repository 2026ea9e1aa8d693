#include "wire/transport/shared_ring.h"

#include <algorithm>
#include <cstring>

#include "base/futex.h"
#include "base/other_process.h"

namespace gpupool::wire {

std::uint64_t RingWriter::room() {
  const std::uint64_t used =
      head_.load(std::memory_order_relaxed) - shared_.tail.load(std::memory_order_acquire);
  if (used <= size_ && !broken()) return size_ - used;
  broken_.store(true, std::memory_order_relaxed);
  return 0;
}

std::size_t RingWriter::write_some(const void* from, std::size_t size) {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>({room(), size, ring_piece}));
  if (count == 0) return 0;
  const auto at = static_cast<std::size_t>(head & (size_ - 1));
  const std::size_t to_end = std::min<std::size_t>(count, static_cast<std::size_t>(size_) - at);
  std::memcpy(data_ + at, from, to_end);
  std::memcpy(data_, static_cast<const std::byte*>(from) + to_end, count - to_end);
  gives_other_process();
  head_.store(head + count, std::memory_order_relaxed);
  shared_.head.store(head + count, std::memory_order_release);
  return count;
}

void RingWriter::wake_reader() {
  // Either the reader sees the new head after it marked itself asleep, or this sees the mark.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (shared_.reader_asleep.load(std::memory_order_relaxed) == 0) return;
  shared_.reader_asleep.store(0, std::memory_order_relaxed);
  futex_wake(shared_.reader_asleep);
}

std::uint64_t RingReader::available() {
  // The own position first: if another thread takes bytes out in between, the difference only grows.
  const std::uint64_t tail = tail_.load(std::memory_order_acquire);
  const std::uint64_t ready = shared_.head.load(std::memory_order_acquire) - tail;
  if (ready <= size_ && !broken()) return ready;
  if (tail != tail_.load(std::memory_order_acquire)) return 1;  // another thread reads: ask again
  broken_.store(true, std::memory_order_relaxed);
  return 0;
}

std::size_t RingReader::read_some(void* into, std::size_t room) {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  const std::uint64_t ready = available();
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>({ready, room, ring_piece}));
  if (count == 0) return 0;
  takes_from_other_process();
  const auto at = static_cast<std::size_t>(tail & (size_ - 1));
  const std::size_t to_end = std::min<std::size_t>(count, static_cast<std::size_t>(size_) - at);
  std::memcpy(into, data_ + at, to_end);
  std::memcpy(static_cast<std::byte*>(into) + to_end, data_, count - to_end);
  tail_.store(tail + count, std::memory_order_release);
  shared_.tail.store(tail + count, std::memory_order_release);
  wake_writer(size_ - (ready - count));
  return count;
}

void RingReader::wake_writer(std::uint64_t free) {
  // Not for every little room: a reader that waits has emptied the ring, so this comes in time.
  if (free < size_ / 4) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (shared_.writer_asleep.load(std::memory_order_relaxed) == 0) return;
  shared_.writer_asleep.store(0, std::memory_order_relaxed);
  futex_wake(shared_.writer_asleep);
}

}  // namespace gpupool::wire
