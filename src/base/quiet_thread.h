// Threads of a library in somebody's program: signals belong to the program's own threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <initializer_list>
#include <thread>
#include <utility>

namespace gpupool {

/// In its scope the calling thread, and those that it starts, take no signals but `kept` and those of its own
/// faults: the kernel ends a process that faults while it blocks them, and memory that is shared with a
/// device is served by faults.
class SignalsBlocked {
 public:
  explicit SignalsBlocked(std::initializer_list<int> kept = {}) {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&blocked, fault);
    for (const int signal : kept) sigdelset(&blocked, signal);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// A thread that takes no signals but `kept`. Throws std::system_error or std::bad_alloc where no thread can
/// be had, and the calling thread's signals are as they were.
template <class Body>
[[nodiscard]] std::thread quiet_thread(Body&& body, std::initializer_list<int> kept = {}) {
  const SignalsBlocked blocked(kept);
  return std::thread(std::forward<Body>(body));
}

}  // namespace gpupool
