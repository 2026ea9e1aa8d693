// Other workers that come to take the session over: on threads of their own, one at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "wire/transport/stream.h"

namespace gpupool::worker {

/// Lives as long as the process: its threads use it.
class Takeovers {
 public:
  using HandOver = std::function<void(wire::Stream&)>;

  explicit Takeovers(HandOver hand_over) : hand_over_(std::move(hand_over)) {}
  Takeovers(const Takeovers&) = delete;
  Takeovers& operator=(const Takeovers&) = delete;

  /// Does not wait. Whoever has no turn within a while is hung up on, and may come again.
  void receive(std::unique_ptr<wire::Stream> stream);

 private:
  /// The one before may have ended in the middle, which its peer here notices a little later.
  void serve(wire::Stream& stream);

  const HandOver hand_over_;
  std::atomic<int> present_{0};
  std::timed_mutex turn_;
};

}  // namespace gpupool::worker
