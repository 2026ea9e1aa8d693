#include "worker/process/orphans.h"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace gpupool::worker {
namespace {

/// A killed process is gone in a moment, unless the kernel holds it.
constexpr std::chrono::milliseconds longest_wait{500}, between_looks{1};

struct Close {
  void operator()(DIR* folder) const { ::closedir(folder); }
  void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
};

/// Of the threads of this process any may be the parent.
void kill_children() {
  const std::unique_ptr<DIR, Close> threads(::opendir("/proc/self/task"));
  if (!threads) return;
  while (const dirent* const thread = ::readdir(threads.get())) {
    const std::string path = "/proc/self/task/" + std::string(thread->d_name) + "/children";
    const std::unique_ptr<std::FILE, Close> children(std::fopen(path.c_str(), "re"));
    for (long child = 0; children && std::fscanf(children.get(), "%ld", &child) == 1;)
      ::kill(static_cast<pid_t>(child), SIGKILL);
  }
}

}  // namespace

void adopt_orphans() noexcept {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

void end_orphans() noexcept {
  const auto until = std::chrono::steady_clock::now() + longest_wait;
  for (;;) {
    // Again each time: what a killed one had started is a child of this process from then on.
    kill_children();
    pid_t ended = 0;
    do ended = ::waitpid(-1, nullptr, WNOHANG | __WALL);
    while (ended > 0 || (ended < 0 && errno == EINTR));
    if (ended < 0 || std::chrono::steady_clock::now() >= until) return;
    std::this_thread::sleep_for(between_looks);
  }
}

}  // namespace gpupool::worker
