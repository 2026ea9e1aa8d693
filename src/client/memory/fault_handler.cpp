#include "client/memory/fault_handler.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <thread>

#include "base/mutex.h"
#include "base/once.h"
#include "base/quiet_thread.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/device_memory.h"
#include "client/process/main_wait.h"
#include "client/session/attach_again.h"
#include "client/session/runtime.h"
#include "client/session/session_hooks.h"
#include "shared_api/error_log.h"

namespace gpupool::client {
namespace {

enum Outcome : std::uint32_t { pending, served, foreign };

/// Lives on the stack of the faulting thread.
struct Fault {
  std::uint64_t address;
  bool write;
  std::atomic<std::uint32_t> outcome{pending};
  Fault* next = nullptr;
};

/// Those of the program's threads, and those of its functions in streams: a thread that serves the first may
/// wait for the device, which may wait for the second.
struct Queue {
  std::atomic<Fault*> waiting{nullptr};
  std::atomic<std::uint32_t> bell{0};
};
Queue of_program, of_host_functions;

void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake(std::atomic<std::uint32_t>& word, int how_many) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, how_many, nullptr, nullptr, 0);
}

/// The actions that were in force before ours. Two places, so that a handler that runs meanwhile reads a
/// whole one.
struct sigaction before[2];
std::atomic<int> newest{0};

#if defined(__x86_64__)
bool is_write(const ucontext_t* context) {
  return (context->uc_mcontext.gregs[REG_ERR] & 2) != 0;
}
bool is_execution(const ucontext_t* context) {
  return (context->uc_mcontext.gregs[REG_ERR] & 16) != 0;
}
std::uint64_t place_of(const ucontext_t* context) {
  return static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_RIP]);
}
#else
// Taken for a read, it faults once more on a page that can be read: then it is known to be a write.
bool is_write(const ucontext_t*) {
  return false;
}
bool is_execution(const ucontext_t*) {
  return false;
}
std::uint64_t place_of(const ucontext_t*) {
  return 0;
}
#endif

void die_of(int signal, bool raised) {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  if (raised) raise(signal);  // delivered when this handler returns; a real fault comes again by itself
}

/// Whether the same instruction faults on and on although the handler before us claims to deal with it:
/// one that has disabled itself (Python's faulthandler after its report) would leave the thread spinning.
bool spins(std::uint64_t place, std::uint64_t address) {
  struct Last {
    std::uint64_t place, address, count;
    timespec since;
  };
  static thread_local Last last;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (last.place != place || last.address != address || now.tv_sec - last.since.tv_sec > 1) {
    last = {place, address, 0, now};
  }
  return ++last.count > 1000;
}

void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = before[newest.load(std::memory_order_acquire)];
  const bool raised = info->si_code <= 0;
  static thread_local int inside = 0;
  if (previous.sa_handler == SIG_IGN && raised) return;
  if (raised && inside > 0) {  // the handler before us has reported the fault and wants it to end the process
    die_of(signal, raised);
    return;
  }
  if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN ||
      spins(place_of(static_cast<const ucontext_t*>(context)),
            reinterpret_cast<std::uint64_t>(info->si_addr))) {
    die_of(signal, raised);
    return;
  }
  // Its own mask; the kernel puts the thread's back when we return.
  pthread_sigmask(SIG_BLOCK, &previous.sa_mask, nullptr);
  if ((previous.sa_flags & SA_NODEFER) != 0) {
    sigset_t itself;
    sigemptyset(&itself);
    sigaddset(&itself, signal);
    pthread_sigmask(SIG_UNBLOCK, &itself, nullptr);
  }
  ++inside;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
  --inside;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto address = reinterpret_cast<std::uint64_t>(info->si_addr);
  const auto* const machine = static_cast<const ucontext_t*>(context);
  if (info->si_code > 0 && !Runtime::forked() && device_memory().owns(address) && !is_execution(machine)) {
    Fault fault{address, is_write(machine)};
    Queue& queue = in_host_function() ? of_host_functions : of_program;
    fault.next = queue.waiting.load(std::memory_order_relaxed);
    while (!queue.waiting.compare_exchange_weak(fault.next, &fault)) {
    }
    queue.bell.fetch_add(1);
    wake(queue.bell, 1);
    const MainWait wait;
    while (fault.outcome.load(std::memory_order_acquire) == pending) wait_while(fault.outcome, pending);
    if (fault.outcome.load(std::memory_order_acquire) == served) {
      errno = saved;
      return;
    }
  }
  pass_on(signal, info, context);
  errno = saved;
}

void serve(Queue& queue, CoherentMemory::By by) {
  prctl(PR_SET_NAME, "gpupool-pages");
  // A fault of its own would wait for this very thread; so it ends the process.
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, SIGSEGV);
  pthread_sigmask(SIG_BLOCK, &own, nullptr);
  never_wait_for_lease();
  while (true) {
    const std::uint32_t heard = queue.bell.load();
    Fault* fault = queue.waiting.exchange(nullptr);
    if (fault == nullptr) wait_while(queue.bell, heard);
    while (fault != nullptr) {
      Fault* const next = fault->next;  // the fault is gone once it has an outcome
      // The program's callbacks hear of errors once its thread goes on and no lock is held.
      const CallbacksLater later;
      const bool known = coherent_memory().serve(fault->address, fault->write, by);
      std::atomic<std::uint32_t>& word = fault->outcome;
      word.store(known ? served : foreign, std::memory_order_release);
      wake(word, INT_MAX);
      fault = next;
    }
  }
}

Mutex& installing() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}

void install() {
  const MutexLock lock(installing());
  struct sigaction now{};
  if (sigaction(SIGSEGV, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &on_fault) return;
  const int other = 1 - newest.load();
  before[other] = now;
  newest.store(other, std::memory_order_release);
  struct sigaction ours{};
  ours.sa_sigaction = &on_fault;
  // On the signal stack where the thread has one: overflows of its stack must still reach the handler before.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace

bool serve_faults() {
  static Once once;
  try {
    once.run([] {
      using By = CoherentMemory::By;
      std::thread of_functions = quiet_thread([] { serve(of_host_functions, By::host_function); });
      of_functions.detach();
      quiet_thread([] { serve(of_program, By::program); }).detach();
    });
  } catch (const std::exception&) {
    return false;
  }
  install();
  return true;
}

void keep_serving_faults() {
  install();
}

}  // namespace gpupool::client
