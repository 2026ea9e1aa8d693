#include "client/process/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/mutex.h"
#include "base/thread_object.h"

namespace gpupool::client {
namespace {

struct Log {
  Mutex mutex;
  std::string path GUARDED_BY(mutex);
};

Log& shared_log() {
  static Log* const log = new Log;  // never destroyed: calls may come from other libraries' destructors
  return *log;
}

std::string& last() {
  return of_this_thread<std::string, struct LastMessage>();
}

thread_local bool caller_tells_refusals = false;

/// The main thread's.
struct OwnRefusals {
  std::string kept, taken;
};

OwnRefusals& own_refusals() {
  static OwnRefusals* const refusals = new OwnRefusals;  // as the log
  return *refusals;
}

/// A variable of the environment is there before this library is; a child process inherits it, and its number
/// is another one.
bool tells_refusals_itself() {
  const char* const by = std::getenv("GPUPOOL_REFUSALS_TOLD_BY");
  return by != nullptr && std::atol(by) == static_cast<long>(getpid());
}

}  // namespace

void log_line(std::string_view text) {
  Log& log = shared_log();
  const MutexLock lock(log.mutex);
  std::string line = "gpupool: " + std::string(text) + "\n";
  int fd = STDERR_FILENO;
  if (!log.path.empty()) fd = open(log.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) fd = STDERR_FILENO;
  [[maybe_unused]] const ssize_t ignored = write(fd, line.data(), line.size());
  if (fd != STDERR_FILENO) close(fd);
}

void log_to_file(std::string_view text) {
  bool named;
  {
    const MutexLock lock(shared_log().mutex);
    named = !shared_log().path.empty();
  }
  if (named) log_line(text);
}

void log_debug(std::string_view text) {
  const char* const wish = std::getenv("GPUPOOL_DEBUG");
  if (wish != nullptr && std::string_view(wish) == "1") log_line(text);
}

CallerTellsRefusals::CallerTellsRefusals() {
  caller_tells_refusals = true;
}
CallerTellsRefusals::~CallerTellsRefusals() {
  caller_tells_refusals = false;
}

void tell_refusal(std::string_view text, bool told) {
  if (caller_tells_refusals) return;
  const bool itself = tells_refusals_itself();
  if (itself && gettid() == getpid()) {
    own_refusals().kept = text;
  } else if (itself || !told) {
    // A notebook shows what its own process writes, and not what a command around it has said.
    log_line(text);
  }
}

const char* take_refusal() {
  OwnRefusals& own = own_refusals();
  own.taken = std::exchange(own.kept, {});
  return own.taken.c_str();
}

void log_to(const std::string& path) {
  Log& log = shared_log();
  const MutexLock lock(log.mutex);
  log.path = path;
}

void remember(std::string text) {
  last() = std::move(text);
}
const char* last_message() {
  return last().c_str();
}

}  // namespace gpupool::client
