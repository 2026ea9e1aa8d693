#include "wire/transport/emulated_stream.h"

#include <new>
#include <vector>

#include "base/quiet_thread.h"

namespace gpupool::wire {

EmulatedStream::EmulatedStream(std::unique_ptr<Stream> inner, LinkQuality quality)
    : inner_(std::move(inner)), down_(quality) {
  up_ = std::make_unique<DelayLine>(quality, [this](auto bytes) { return inner_->send(bytes); });
  reader_ = quiet_thread([this] { read(); });
}

EmulatedStream::~EmulatedStream() {
  if (!reader_.joinable()) return;  // given up in a forked child
  up_.reset();                      // what was sent last still arrives
  shut_down();
  reader_.join();
}

// It notes when bytes come, also while nobody reads.
void EmulatedStream::read() {
  std::vector<std::byte> buffer(64 << 10);
  while (true) {
    const std::size_t got = inner_->receive_some(buffer.data(), buffer.size());
    if (got == 0 || !down_.put(std::span(buffer).first(got))) break;
  }
  down_.close();
}

bool EmulatedStream::send_parts(iovec* parts, int count, bool) {
  for (; count > 0; ++parts, --count) {
    if (!up_->put({static_cast<const std::byte*>(parts->iov_base), parts->iov_len})) return false;
  }
  return true;
}

std::size_t EmulatedStream::receive_some(void* into, std::size_t room) {
  return down_.take(into, room);
}

bool EmulatedStream::readable(int timeout_ms) {
  return down_.readable(timeout_ms);
}

bool EmulatedStream::holds_unread() {
  return down_.holds_unread();
}

void EmulatedStream::shut_down() noexcept {
  inner_->shut_down();
  if (up_ != nullptr) up_->cut();
  down_.cut();
}

void EmulatedStream::abandon_after_fork() noexcept {
  inner_->abandon_after_fork();
  up_->abandon_after_fork();
  new (&reader_) std::thread();
}

}  // namespace gpupool::wire
