// The end of one piece of stream work: what others wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

namespace softgpu::driver {

class Stream;

class Completion {
 public:
  using Clock = std::chrono::steady_clock;

  Completion() = default;
  // Of work in that stream's queue, the one at that place of all that were ever there.
  Completion(std::weak_ptr<Stream> stream, std::uint64_t place) : stream_(std::move(stream)), place_(place) {}

  std::uint64_t place() const { return place_; }

  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  // The waiting thread works: it does what its stream has not begun, or helps where it has.
  void wait() const;
  // By the thread that does the work.
  void begin();
  void finish();
  // Valid once done() is true.
  Clock::time_point finished() const { return finished_; }

 private:
  static constexpr int not_begun = -1;

  bool work_meanwhile() const;

  const std::weak_ptr<Stream> stream_{};
  const std::uint64_t place_ = 0;
  std::atomic<unsigned> done_{0};
  std::atomic<int> core_{not_begun};  // where the work is done
  std::thread::id worker_;            // by whom; valid once it has begun
  Clock::time_point finished_{};
};

using CompletionRef = std::shared_ptr<Completion>;

}  // namespace softgpu::driver
