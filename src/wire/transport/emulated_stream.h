// A stream that behaves as if there were a slower network between its ends.
#pragma once

#include <memory>
#include <thread>

#include "wire/transport/delay_line.h"
#include "wire/transport/delayed_arrivals.h"
#include "wire/transport/stream.h"

namespace gpupool::wire {

/// Around the client's end; both directions have the same quality.
class EmulatedStream final : public Stream {
 public:
  EmulatedStream(std::unique_ptr<Stream> inner, LinkQuality quality);
  ~EmulatedStream() override;

  using Stream::send_parts;
  [[nodiscard]] bool send_parts(iovec* parts, int count, bool more_follows) override;
  [[nodiscard]] std::size_t receive_some(void* into, std::size_t room) override;
  [[nodiscard]] bool readable(int timeout_ms) override;
  [[nodiscard]] bool holds_unread() override;
  [[nodiscard]] bool hung_up() const override { return inner_->hung_up(); }
  [[nodiscard]] bool vanished() const override { return inner_->vanished(); }
  void shut_down() noexcept override;
  void abandon_after_fork() noexcept override;
  [[nodiscard]] std::string description() const override {
    return inner_->description() + ", emulated network";
  }

 private:
  void read();

  std::unique_ptr<Stream> inner_;
  std::unique_ptr<DelayLine> up_;
  DelayedArrivals down_;
  std::thread reader_;
};

}  // namespace gpupool::wire
