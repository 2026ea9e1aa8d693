// A stream whose peer has said everything already and listens to nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>

#include "wire/transport/stream.h"

namespace gpupool::fuzz {

class MemoryStream final : public wire::Stream {
 public:
  explicit MemoryStream(std::span<const std::byte> bytes) : left_(bytes) {}

  using Stream::send_parts;
  bool send_parts(iovec* parts, int count, bool) override {
    // Reads what would be sent, so that a sanitizer sees a part that is not there.
    unsigned char sum = 0;
    for (int n = 0; n < count; ++n) {
      const auto* const bytes = static_cast<const unsigned char*>(parts[n].iov_base);
      for (std::size_t at = 0; at < parts[n].iov_len; ++at) sum = static_cast<unsigned char>(sum + bytes[at]);
    }
    sum_ = sum;
    return !ended_;
  }
  std::size_t receive_some(void* into, std::size_t room) override {
    const std::size_t size = ended_ ? 0 : std::min(room, left_.size());
    if (size != 0) std::memcpy(into, left_.data(), size);
    left_ = left_.subspan(size);
    return size;
  }
  bool readable(int) override { return true; }
  bool holds_unread() override { return !left_.empty(); }
  bool hung_up() const override { return false; }
  void shut_down() noexcept override { ended_ = true; }
  void abandon_after_fork() noexcept override {}
  std::string description() const override { return "memory"; }

 private:
  std::span<const std::byte> left_;
  std::atomic<bool> ended_{false};  // a thread that posts may send while another one reads
  std::atomic<unsigned char> sum_{0};
};

}  // namespace gpupool::fuzz
