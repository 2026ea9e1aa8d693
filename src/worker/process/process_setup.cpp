#include "worker/process/process_setup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace gpupool::worker {
namespace {

void close_from(unsigned first) {
  if (::close_range(first, ~0U, 0) == 0) return;
  rlimit limit{};  // kernels before 5.9
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (rlim_t fd = first; fd < limit.rlim_cur && fd < 65536; ++fd) ::close(static_cast<int>(fd));
}

[[noreturn]] void failed(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

int set_up_process() {
  close_from(3);
  // EPERM: already the leader of its session, hence of its group.
  if (::setpgid(0, 0) != 0 && errno != EPERM) failed("setpgid");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) failed("PR_SET_NO_NEW_PRIVS");
  const rlimit no_core{0, 0};
  if (::setrlimit(RLIMIT_CORE, &no_core) != 0) failed("RLIMIT_CORE");
  // Memory that can be given to other processes may take a descriptor each.
  if (rlimit files{}; ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  sigset_t endings;
  sigemptyset(&endings);
  sigaddset(&endings, SIGTERM);
  sigaddset(&endings, SIGINT);
  if (::sigprocmask(SIG_BLOCK, &endings, nullptr) != 0) failed("sigprocmask");
  const int answer = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (answer < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) failed("stdout");
  return answer;
}

void release_stdin() noexcept {
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0) return;
  ::dup2(nothing, STDIN_FILENO);
  ::close(nothing);
}

}  // namespace gpupool::worker
