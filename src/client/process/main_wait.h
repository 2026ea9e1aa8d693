// The main thread waits for a worker, and the user interrupts it: interpreters notice signals between two
// calls only, so a thread of ours notices them for it.
//
// What a wait costs is two atomic stores. A handler for SIGINT is in place (in front of the program's) only
// while the main thread has been in one wait for some time. The first interrupt of a wait asks what runs and
// says it; one more, any time later, ends the session, and with it the wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace gpupool::client {

[[nodiscard]] bool in_main_thread();

/// What an interrupt leads to. Called on threads of ours.
struct WaitActions {
  using Clock = std::chrono::steady_clock;
  /// The first one. `since`: when the wait began. `goes_on`: whether the same wait still does.
  std::function<void(Clock::time_point since, const std::function<bool()>& goes_on)> explain;
  std::function<void()> end;
};

/// From now on waits can be interrupted. Once, before the first of them.
void watch_main_waits(WaitActions actions);

/// Around whatever may wait for a worker; of several, one inside the other, the outermost counts. Does
/// nothing in other threads.
class MainWait {
 public:
  MainWait() : entered_(in_main_thread()) {
    if (entered_) enter();
  }
  ~MainWait() {
    if (entered_) leave();
  }
  MainWait(const MainWait&) = delete;
  MainWait& operator=(const MainWait&) = delete;

 private:
  static void enter();
  static void leave();
  bool entered_;
};

}  // namespace gpupool::client
