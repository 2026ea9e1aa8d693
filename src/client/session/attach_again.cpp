#include "client/session/attach_again.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "client/session/runtime.h"

namespace gpupool::client {
namespace {

std::atomic<bool> wishing{false};
thread_local bool excluded = false;

/// The one wish of this process that is under way.
struct Shared {
  Mutex mutex;
  unsigned long GUARDED_BY(mutex) number = 0;  ///< of the latest
  unsigned users GUARDED_BY(mutex) = 0;        ///< threads that wait for it
  int pipe GUARDED_BY(mutex) = -1;
};

Shared& shared() {
  static auto* const only = new Shared;  // threads may outlive static objects
  return *only;
}

/// The pipe's end for writing, -1 where nobody listens. A file under this name is not obeyed.
int open_pipe() {
  const char* const path = std::getenv("GPUPOOL_SESSION_FILE");
  if (path == nullptr) return -1;
  const int fd =
      open((std::string(path) + ".wishes").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  struct stat found{};
  if (fd >= 0 && (fstat(fd, &found) != 0 || !S_ISFIFO(found.st_mode) || found.st_uid != geteuid())) {
    close(fd);
    return -1;
  }
  return fd;
}

/// One short line is written as a whole or not at all.
bool say(int pipe, const char* what, unsigned long number) {
  const std::string line = std::string(what) + " " + std::to_string(number) + "\n";
  sigset_t broken, before;  // nobody may listen any more, which is no reason to end the program
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken, &before);
  const bool said = write(pipe, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!said && errno == EPIPE && sigismember(&before, SIGPIPE) == 0) {
    const timespec now{};
    sigtimedwait(&broken, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return said;
}

}  // namespace

void wish_for_leases(bool on) {
  wishing.store(on);
}

bool may_wish() {
  return !excluded && wishing.load();
}

bool never_waits() {
  return excluded;
}

void never_wait_for_lease() {
  excluded = true;
}

NoLeaseWait::NoLeaseWait() : before_(std::exchange(excluded, true)) {}

NoLeaseWait::~NoLeaseWait() {
  excluded = before_;
}

LeaseWish::LeaseWish() {
  Shared& all = shared();
  const MutexLock lock(all.mutex);
  if (all.users == 0) {
    all.pipe = open_pipe();
    ++all.number;
    if (all.pipe >= 0 && !say(all.pipe, "want", all.number)) {
      close(all.pipe);
      all.pipe = -1;
    }
  }
  ++all.users;
  number_ = all.number;
}

LeaseWish::~LeaseWish() {
  Shared& all = shared();
  const MutexLock lock(all.mutex);
  if (--all.users != 0 || all.pipe < 0) return;
  say(all.pipe, "done", number_);
  close(all.pipe);
  all.pipe = -1;
}

bool LeaseWish::heard() const {
  Shared& all = shared();
  const MutexLock lock(all.mutex);
  if (all.pipe < 0) return false;
  pollfd end{all.pipe, 0, 0};  // POLLERR: the other end is closed
  return poll(&end, 1, 0) == 0;
}

bool Runtime::wants_lease() {
  const MutexLock lock(mutex_);
  if (ready_.load()) return false;
  std::string error;
  const auto file = read_file(error);
  return file && session_.wants_lease(*file);
}

Runtime::Wished Runtime::answer_to(unsigned long wish) {
  const MutexLock lock(mutex_);
  if (ready_.load()) return Wished::granted;
  std::string error;
  const auto file = read_file(error);
  if (!file) return Wished::waits;
  if (!session_.wants_lease(*file)) return Wished::granted;
  return file->answered >= wish ? Wished::refused : Wished::waits;
}

CUresult Runtime::attach_for_call() {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  // More than once: a lease that the file names may turn out to be over.
  CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  for (int attempt = 0; attempt < 2; ++attempt) {
    LeaseWait waited = await_lease();
    if (waited == LeaseWait::came) attempt = 0;
    const bool may = may_wish();
    if (waited != LeaseWait::interrupted && may && wants_lease()) {
      waited = wish_for_lease();
      if (waited == LeaseWait::none) return attach();  // which says why there is none
    }
    if (waited == LeaseWait::interrupted) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    result = attach();
    if (result != CUDA_ERROR_DEVICE_UNAVAILABLE ||
        (!may && waited == LeaseWait::none && prospect() == SessionState::Prospect::none)) {
      break;
    }
  }
  return result;
}

}  // namespace gpupool::client
