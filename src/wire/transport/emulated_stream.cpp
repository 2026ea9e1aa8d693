#include "wire/transport/emulated_stream.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>

#include "base/mutex.h"
#include "base/quiet_thread.h"

namespace gpupool::wire {
namespace {

constexpr std::size_t receive_buffer = 4 << 20;

}  // namespace

EmulatedStream::EmulatedStream(std::unique_ptr<Stream> inner, LinkQuality quality)
    : inner_(std::move(inner)) {
  up_ = std::make_unique<DelayLine>(quality, [this](auto bytes) { return inner_->send(bytes); });
  down_ = std::make_unique<DelayLine>(quality, [this](auto bytes) { return arrived(bytes); });
  reader_ = quiet_thread([this] { read(); });
}

EmulatedStream::~EmulatedStream() {
  if (!reader_.joinable()) return;  // given up in a forked child
  up_.reset();                      // what was sent last still arrives
  shut_down();
  reader_.join();
  down_.reset();
}

void EmulatedStream::read() {
  std::vector<std::byte> buffer(64 << 10);
  while (true) {
    const std::size_t got = inner_->receive_some(buffer.data(), buffer.size());
    if (got == 0 || !down_->put(std::span(buffer).first(got))) break;
  }
  down_->close([this] { end(); });
}

bool EmulatedStream::arrived(std::span<const std::byte> bytes) {
  MutexLock lock(mutex_);
  changed_.wait(mutex_,
                [this]() REQUIRES(mutex_) { return ended_ || received_.size() - taken_ < receive_buffer; });
  if (ended_) return false;
  received_.insert(received_.end(), bytes.begin(), bytes.end());
  changed_.notify_all();
  return true;
}

void EmulatedStream::end() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

bool EmulatedStream::send_parts(iovec* parts, int count, bool) {
  for (; count > 0; ++parts, --count) {
    if (!up_->put({static_cast<const std::byte*>(parts->iov_base), parts->iov_len})) return false;
  }
  return true;
}

std::size_t EmulatedStream::receive_some(void* into, std::size_t room) {
  MutexLock lock(mutex_);
  changed_.wait(mutex_, [this]() REQUIRES(mutex_) { return ended_ || taken_ < received_.size(); });
  const std::size_t some = std::min(room, received_.size() - taken_);
  if (some > 0) std::memcpy(into, received_.data() + taken_, some);
  taken_ += some;
  if (taken_ == received_.size() || taken_ > receive_buffer) {
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
  }
  changed_.notify_all();
  return some;
}

bool EmulatedStream::readable(int timeout_ms) {
  MutexLock lock(mutex_);
  const auto ready = [this]() REQUIRES(mutex_) { return ended_ || taken_ < received_.size(); };
  if (timeout_ms >= 0) return changed_.wait_for(mutex_, std::chrono::milliseconds(timeout_ms), ready);
  changed_.wait(mutex_, ready);
  return true;
}

bool EmulatedStream::holds_unread() {
  const MutexLock lock(mutex_);
  return taken_ < received_.size();
}

void EmulatedStream::shut_down() noexcept {
  inner_->shut_down();
  if (up_ != nullptr) up_->cut();
  down_->cut();
  end();
}

void EmulatedStream::abandon_after_fork() noexcept {
  inner_->abandon_after_fork();
  up_->abandon_after_fork();
  down_->abandon_after_fork();
  new (&reader_) std::thread();
}

}  // namespace gpupool::wire
