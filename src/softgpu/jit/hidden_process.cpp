#include "softgpu/jit/hidden_process.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <memory>

// glibc's clone under its other name: ThreadSanitizer takes the first for a fork.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...);

namespace softgpu::jit {
namespace {

constexpr std::size_t stack_bytes = 256 << 10;

struct Start {
  const char* path;
  const posix_spawn_file_actions_t* files;
  const posix_spawnattr_t* attributes;
  char* const* arguments;
  char* const* environment;
  int failed = 0;
  pid_t number = -1;
  int handle = -1;
};

// While its parent lives, and has not waited for it, a process keeps its number.
int start_and_leave(void* of) {
  auto& asked = *static_cast<Start*>(of);
  asked.failed = posix_spawn(&asked.number, asked.path, asked.files, asked.attributes, asked.arguments,
                             asked.environment);
  if (asked.failed == 0) asked.handle = static_cast<int>(syscall(SYS_pidfd_open, asked.number, 0));
  return 0;
}

}  // namespace

// A process in between starts it and is gone at once. That one is a child whose end raises no signal and that
// only who asks for such children finds. It has this thread's memory and descriptors while this thread waits,
// as with vfork, so that it costs the same however much memory the program has.
int HiddenProcess::start(const char* path, const posix_spawn_file_actions_t& files,
                         const posix_spawnattr_t& attributes, char* const arguments[],
                         char* const environment[]) {
  end();
  Start asked{path, &files, &attributes, arguments, environment};
  const auto stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
  // The program's handlers of signals would run in the process in between, too.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t between =
      __clone(&start_and_leave, stack.get() + stack_bytes, CLONE_VM | CLONE_VFORK | CLONE_FILES, &asked);
  if (between < 0) asked.failed = errno;
  while (between > 0 && waitpid(between, nullptr, __WCLONE) < 0 && errno == EINTR) continue;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (asked.failed != 0) return asked.failed;
  number_ = asked.number;
  handle_ = asked.handle;
  return 0;
}

void HiddenProcess::kill() {
  if (handle_ >= 0) syscall(SYS_pidfd_send_signal, handle_, SIGKILL, nullptr, 0);
}

void HiddenProcess::end() {
  kill();
  if (handle_ >= 0) {
    // Where the program takes care of all that lost its parent, as the first process of a container does.
    constexpr auto by_handle = static_cast<idtype_t>(3);  // P_PIDFD
    siginfo_t ended{};
    while (waitid(by_handle, static_cast<id_t>(handle_), &ended, WEXITED) < 0 && errno == EINTR) continue;
    close(handle_);
  }
  number_ = handle_ = -1;
}

}  // namespace softgpu::jit
