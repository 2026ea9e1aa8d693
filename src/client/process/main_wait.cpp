#include "client/process/main_wait.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/quiet_thread.h"
#include "client/process/signal_front.h"

namespace gpupool::client {
namespace {

using Clock = WaitActions::Clock;

/// How often the watching thread looks while the main thread waits now and then.
constexpr timespec look_every{0, 25'000'000};
/// So many looks at a main thread that does not wait, and the watching thread sleeps.
constexpr int looks_in_vain = 40;
/// A terminal and a parent process may both pass one key press on.
constexpr auto one_press = std::chrono::milliseconds(200);

/// The main thread's wait: its number, times four, plus this.
enum Phase : std::uint64_t {
  over = 0,
  begun = 1,
  watched = 2  ///< the handler is in place
};

class Watch {
 public:
  explicit Watch(WaitActions actions) : actions_(std::move(actions)) {}

  // The main thread's.
  void enter() {
    if (depth_++ != 0) return;
    number_ += 4;
    state_.store(number_ | begun);
    if (asleep_.load() != 0) wake();
  }
  void leave() {
    if (--depth_ != 0) return;
    std::uint64_t expected = number_ | begun;
    if (state_.compare_exchange_strong(expected, number_ | over)) return;
    const MutexLock lock(changing_);
    front_.remove();
    state_.store(number_ | over);
  }

  [[noreturn]] void run() {
    prctl(PR_SET_NAME, "gpupool-intr");
    std::uint64_t seen = 0;
    for (int in_vain = 0;;) {
      clock_nanosleep(CLOCK_MONOTONIC, 0, &look_every, nullptr);
      const std::uint64_t now = state_.load();
      switch (now & 3) {
        case over:
          if (++in_vain < looks_in_vain) break;
          asleep_.store(1);
          if (state_.load() == now) sleep();
          asleep_.store(0);
          [[fallthrough]];
        default:
          in_vain = 0;
          if (now == seen) begin(now);
          break;
        case watched:
          look_at_interrupts(now - watched);
      }
      seen = now;
    }
  }

 private:
  /// The main thread has been in this wait for a whole look.
  void begin(std::uint64_t wait) {
    if ((wait & 3) != begun) return;
    const MutexLock lock(changing_);
    if (!state_.compare_exchange_strong(wait, wait - begun + watched)) return;
    handled_ = 0;
    since_ = Clock::now() - std::chrono::nanoseconds(look_every.tv_nsec);
    front_.install(SIGINT);
  }

  void look_at_interrupts(std::uint64_t wait) {
    unsigned seen = 0;
    {
      const MutexLock lock(changing_);
      if (state_.load() == (wait | watched)) seen = front_.seen();
    }
    if (seen <= handled_) return;
    const bool first = handled_ == 0;
    handled_ = seen;
    if (first) {
      first_at_ = Clock::now();
      explain(wait);
    } else if (Clock::now() - first_at_ >= one_press) {
      actions_.end();
    }
  }

  /// Asking takes a while, and a second interrupt is to be noticed meanwhile.
  void explain(std::uint64_t wait) {
    const auto goes_on = [this, wait] { return state_.load() == (wait | watched); };
    try {
      std::thread([this, goes_on, since = since_] { actions_.explain(since, goes_on); }).detach();
    } catch (const std::system_error&) {  // without a thread nothing is said; the next interrupt acts
    }
  }

  void sleep() {
    while (asleep_.load() != 0) {
      syscall(SYS_futex, &asleep_, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }
  void wake() {
    asleep_.store(0);
    syscall(SYS_futex, &asleep_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  const WaitActions actions_;
  // The main thread's.
  int depth_ = 0;
  std::uint64_t number_ = 0;
  // Both threads'.
  std::atomic<std::uint64_t> state_{0};
  std::atomic<std::uint32_t> asleep_{0};
  Mutex changing_;  // the handler and the phase `watched` change together under it
  SignalFront front_ GUARDED_BY(changing_);
  // The watching thread's, of the wait that is watched.
  unsigned handled_ = 0;
  Clock::time_point since_, first_at_;
};

std::atomic<Watch*> watch{nullptr};

}  // namespace

bool in_main_thread() {
  static thread_local signed char known = 0;
  if (known == 0) known = static_cast<pid_t>(syscall(SYS_gettid)) == getpid() ? 1 : -1;
  return known > 0;
}

void watch_main_waits(WaitActions actions) {
  static Mutex starting;
  const MutexLock lock(starting);
  if (watch.load() != nullptr) return;
  auto* const made = new Watch(std::move(actions));
  try {
    quiet_thread([made] { made->run(); }).detach();
    watch.store(made);
  } catch (const std::exception&) {
    delete made;
  }
}

void MainWait::enter() {
  if (Watch* const all = watch.load(std::memory_order_acquire)) all->enter();
}

void MainWait::leave() {
  if (Watch* const all = watch.load(std::memory_order_acquire)) all->leave();
}

}  // namespace gpupool::client
