// The threads that help whoever launches a kernel.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace softgpu {

class HelperThreads {
 public:
  explicit HelperThreads(unsigned count);
  // `awake`: how long one that has nothing to do looks for work before it sleeps, where that pays.
  HelperThreads(unsigned count, std::chrono::microseconds awake);
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  [[nodiscard]] unsigned count() const;
  // Calls part(0) here and part(1), part(2), … in up to `helpers` threads that find the time while that
  // lasts; returns when all of them have. Several threads may share work at once. `part` throws nothing.
  void share(unsigned helpers, const std::function<void(uint32_t)>& part);
  // Takes part, as one of the helpers, in what `owner` shares; false if that wants nobody.
  bool help(std::thread::id owner);
  // Has a helper that is awake call that in a moment, or sooner when work is shared; false if all sleep or
  // work. `call` does not wait, and throws nothing.
  bool in_a_moment(std::function<void()> call);
  // Whether anybody wants help.
  [[nodiscard]] bool wanted() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace softgpu
