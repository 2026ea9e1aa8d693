#include "client/session/session_file_watch.h"

#include <sys/inotify.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "base/once.h"
#include "base/quiet_thread.h"
#include "client/session/attach_again.h"
#include "client/session/runtime.h"

namespace gpupool::client {
namespace {

struct Watched {
  std::string folder, name;
};

Watched watched_file() {
  const char* const path = std::getenv("GPUPOOL_SESSION_FILE");
  const std::string text = path != nullptr ? path : "";
  const std::size_t slash = text.rfind('/');
  if (slash == std::string::npos) return {".", text};
  return {slash == 0 ? "/" : text.substr(0, slash), text.substr(slash + 1)};
}

/// Whether one of the events in a buffer that the kernel filled is about `name`.
bool mentions(const std::byte* buffer, std::size_t size, std::string_view name) {
  for (std::size_t at = 0; at + sizeof(inotify_event) <= size;) {
    inotify_event event;
    std::memcpy(&event, buffer + at, sizeof(event));
    const auto* const text = reinterpret_cast<const char*>(buffer + at + sizeof(event));
    if ((event.mask & IN_Q_OVERFLOW) != 0 || (event.len > 0 && name == text)) return true;
    at += sizeof(event) + event.len;
  }
  return false;
}

void watch(int events, const std::string& name) {
  prctl(PR_SET_NAME, "gpupool-lease");
  never_wait_for_lease();
  runtime().notice_session_file();  // it may have been replaced before it was watched
  alignas(inotify_event) std::array<std::byte, 4096> buffer;
  while (true) {
    const ssize_t got = read(events, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (mentions(buffer.data(), static_cast<std::size_t>(got), name)) runtime().notice_session_file();
  }
  close(events);
}

void start() {
  const Watched file = watched_file();
  // The file is always replaced as a whole, so its folder is watched and not the file.
  const int events = inotify_init1(IN_CLOEXEC);
  if (events < 0) return;
  if (file.name.empty() || inotify_add_watch(events, file.folder.c_str(), IN_MOVED_TO | IN_DELETE) < 0) {
    close(events);
    return;
  }
  try {
    quiet_thread([events, name = file.name] { watch(events, name); }).detach();
  } catch (const std::exception&) {
    close(events);
  }
}

}  // namespace

void watch_session_file() {
  static Once once;
  once.run(&start);
}

void Runtime::notice_session_file() {
  std::uint64_t settles = 0;
  {
    const MutexLock lock(mutex_);
    if (forked() || !ready_.load()) return;
    std::string error;
    const auto file = read_file(error);
    if (!file) return;
    if (file->state == FileState::attached) {
      bool same = file->workers() == workers();
      for (unsigned n = 0; same && n < workers(); ++n)
        same = file->of_worker(n).epoch == links_[n].epoch.load();
      if (same) return;
    }
    ready_.store(false);
    ++detaches_;
    session_.detached();
    if (file->state == FileState::waiting) settles = file->generation;
  }
  if (settles != 0) settle(settles);
}

}  // namespace gpupool::client
