#include "client/session/lease_wait.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "client/process/log.h"
#include "client/process/main_wait.h"
#include "client/session/attach_again.h"
#include "client/session/runtime.h"

namespace gpupool::client {
namespace {

using Clock = std::chrono::steady_clock;

/// How often a waiting thread looks at the session file: a stat() each.
constexpr timespec look_every{0, 20'000'000};
/// How long a call waits for the holder to notice that the lease is over, and to say whether it has asked
/// again: holders renew every 5 s, and are told at the next renewal.
constexpr auto notice_limit = std::chrono::seconds(10);
/// After an interrupt, or a wish in vain, calls are refused at once for so long: those that clean up behind
/// the first must not wait as long again, each of them.
constexpr auto quiet_time = std::chrono::seconds(1);
/// What lies unfinished when the holder says that the lease will end may take so long; holders know
/// (gpupool/client/returning.py).
constexpr int settle_limit_ms = 60'000;

std::atomic<Clock::rep> quiet_until{0};

void be_quiet() {
  quiet_until.store((Clock::now() + quiet_time).time_since_epoch().count());
}

bool quiet() {
  return Clock::now().time_since_epoch().count() < quiet_until.load();
}

/// Which file lies there: it is always replaced as a whole.
struct Identity {
  ino_t inode = 0;
  timespec changed{};
  bool operator==(const Identity& other) const {
    return inode == other.inode && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

Identity session_file_identity() {
  const char* const path = std::getenv("GPUPOOL_SESSION_FILE");
  struct stat found{};
  if (path == nullptr || stat(path, &found) != 0) return {};
  return {found.st_ino, found.st_ctim};
}

}  // namespace

void end_quiet() {
  quiet_until.store(0);
}

InterruptWatch::InterruptWatch() {
  if (!in_main_thread()) return;
  interrupt_.install(SIGINT);
  termination_.install(SIGTERM);
}

bool InterruptWatch::interrupted() const {
  return interrupt_.seen() != 0 || termination_.seen() != 0;
}

SessionState::Prospect Runtime::prospect() {
  const MutexLock lock(mutex_);
  if (ready_.load() || any_broken()) return SessionState::Prospect::none;
  std::string error;
  const auto file = read_file(error);
  if (!file) return SessionState::Prospect::none;
  const auto found = session_.prospect(*file);
  if (found != SessionState::Prospect::soon) return found;
  const auto now = Clock::now();
  if (refused_generation_ != file->generation) {
    refused_generation_ = file->generation;
    refused_since_ = now;
  }
  return now - refused_since_ < notice_limit ? found : SessionState::Prospect::none;
}

LeaseWait Runtime::await_lease() {
  using Prospect = SessionState::Prospect;
  if (never_waits()) return LeaseWait::none;
  if (quiet()) return LeaseWait::none;
  Identity looked_at = session_file_identity();
  Prospect prospect = this->prospect();
  if (prospect == Prospect::none) return LeaseWait::none;
  const InterruptWatch watch;
  while (prospect != Prospect::none) {
    clock_nanosleep(CLOCK_MONOTONIC, 0, &look_every, nullptr);
    if (watch.interrupted()) {
      be_quiet();
      remember("Stopped waiting for the GPU share that was taken back; what is in GPU memory is kept.");
      return LeaseWait::interrupted;
    }
    const Identity now = session_file_identity();
    // Without a change of the file nothing can have become better, but a connection may have broken for good.
    if (prospect == Prospect::sure && now == looked_at && !any_broken()) continue;
    looked_at = now;
    prospect = this->prospect();
  }
  return LeaseWait::came;
}

LeaseWait Runtime::wish_for_lease() {
  if (quiet()) return LeaseWait::none;
  const InterruptWatch watch;
  const LeaseWish wish;
  Identity looked_at{};
  while (true) {
    const Identity now = session_file_identity();
    if (!(now == looked_at)) {
      looked_at = now;
      const Wished answer = answer_to(wish.number());
      if (answer == Wished::granted) return LeaseWait::came;
      if (answer == Wished::refused) break;
    }
    if (!wish.heard()) break;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &look_every, nullptr);
    if (watch.interrupted()) {
      be_quiet();
      remember("Stopped waiting for a GPU; nothing is attached.");
      return LeaseWait::interrupted;
    }
  }
  be_quiet();
  return LeaseWait::none;
}

void Runtime::settle(std::uint64_t generation) {
  for (unsigned n = 0; n < workers(); ++n) {
    Reply reply;
    // What failed is told to the program's next call, as ever.
    if (ask_within(links_[n], wire::Control::drain, links_[n].epoch.load(), reply, settle_limit_ms,
                   wire::packed(wire::Drain{static_cast<std::uint32_t>(settle_limit_ms)})) !=
        Connection::Outcome::answered) {
      return;
    }
  }
  const char* const path = std::getenv("GPUPOOL_SESSION_FILE");
  if (path == nullptr) return;
  const std::string text = std::to_string(generation) + "\n";
  const int fd =
      open((std::string(path) + ".settled").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t ignored = write(fd, text.data(), text.size());
  close(fd);
}

}  // namespace gpupool::client
