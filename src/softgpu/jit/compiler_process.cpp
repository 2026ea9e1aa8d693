#include "softgpu/jit/compiler_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include "base/mutex.h"
#include "softgpu/jit/compiler_protocol.h"

extern char** environ;

namespace softgpu::jit {
namespace {

// Of the compiler's processor time: on a busy machine it takes many times as long by the clock.
constexpr int start_milliseconds = 20'000;    // LLVM is large
constexpr int compile_milliseconds = 60'000;  // a kernel that takes longer stays interpreted
// By the clock, for a compiler that computes nothing: it is looked at so often, and given up after so many
// looks.
constexpr int look_milliseconds = 250;
constexpr int most_looks = 2'400;
// For the rest of an answer that has begun to arrive.
constexpr int transfer_milliseconds = 60'000;

// What a process has computed so far; negative: it is not there.
std::int64_t processor_milliseconds(pid_t process) {
  clockid_t clock{};
  timespec used{};
  if (process <= 0 || clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &used) != 0)
    return -1;
  return used.tv_sec * std::int64_t{1000} + used.tv_nsec / 1'000'000;
}

// Beside the library, or the program, that this code is part of.
std::string path_of_compiler() {
  if (const char* const wish = std::getenv("GPUPOOL_SOFTGPU_JIT_COMPILER"); wish != nullptr && *wish != '\0')
    return wish;
  Dl_info place{};
  if (dladdr(reinterpret_cast<void*>(&path_of_compiler), &place) == 0 || place.dli_fname == nullptr)
    return "";
  char resolved[PATH_MAX];
  if (realpath(place.dli_fname, resolved) == nullptr) return "";
  const std::string file = resolved;
  return file.substr(0, file.rfind('/') + 1) + std::string(compiler_name);
}

// Libraries that a person has preloaded for the program are not for the compiler.
std::vector<char*> environment_without_preload() {
  std::vector<char*> made;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (std::string_view(*variable).rfind("LD_PRELOAD=", 0) != 0) made.push_back(*variable);
  }
  made.push_back(nullptr);
  return made;
}

}  // namespace

CompilerProcess::~CompilerProcess() {
  end();
}

bool CompilerProcess::start(std::string& problem) {
  {
    const gpupool::MutexLock lock(process_mutex_);
    if (socket_ >= 0) return true;
    if (abandoned_ || hopeless_) {
      problem = hopeless_ ? problem_ : "the process is ending";
      return false;
    }
    const std::string path = path_of_compiler();
    int pair[2];
    if (path.empty() || access(path.c_str(), X_OK) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
      hopeless_ = true;
      problem_ = problem = "there is no program " + (path.empty() ? std::string(compiler_name) : path);
      return false;
    }
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, pair[1], STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    // LLVM's last words would stand in the midst of the program's own.
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    // A group of its own: Ctrl-C is for the program.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    std::string name(compiler_name);
    char* const arguments[] = {name.data(), nullptr};
    std::vector<char*> environment = environment_without_preload();
    const int failed = process_.start(path.c_str(), files, attributes, arguments, environment.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    close(pair[1]);
    if (failed != 0) {
      close(pair[0]);
      hopeless_ = true;
      problem_ = problem = path + " cannot be started: " + std::strerror(failed);
      return false;
    }
    socket_ = pair[0];
  }
  MessageKind kind{};
  std::string text;
  const bool answered =
      answers(start_milliseconds) && receive_message(socket(), kind, text, transfer_milliseconds);
  if (answered && kind == MessageKind::ready) {
    identity_ = text;
    return true;
  }
  end();
  hopeless_ = true;
  problem_ = problem = answered ? text : "the compiler process ended at its start";
  return false;
}

std::string CompilerProcess::identity(std::string& problem) {
  const gpupool::MutexLock lock(mutex_);
  if (!identity_.empty()) return identity_;
  return start(problem) ? identity_ : std::string();
}

std::optional<std::vector<std::byte>> CompilerProcess::compile(const std::string& text, std::string& error) {
  const gpupool::MutexLock lock(mutex_);
  if (!start(error)) return std::nullopt;
  MessageKind kind{};
  std::string answer;
  const auto answered = [&] {
    // What one that has ended said at last still lies here.
    const bool sent = send_message(socket(), MessageKind::text, text);
    return (!sent || answers(compile_milliseconds)) &&
           receive_message(socket(), kind, answer, transfer_milliseconds);
  };
  bool is_answer = answered();
  if (is_answer && kind == MessageKind::farewell) {
    end();
    is_answer = start(error) && answered();
  }
  if (!is_answer) {
    // The next kernel gets a new one.
    end();
    if (error.empty()) {
      error = "LLVM ended over it, or took more than " + std::to_string(compile_milliseconds / 1000) +
              " s of processor time";
    }
    return std::nullopt;
  }
  if (kind != MessageKind::object) {
    error = answer;
    return std::nullopt;
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(answer.data());
  return std::vector<std::byte>(bytes, bytes + answer.size());
}

bool CompilerProcess::answers(int most_milliseconds) {
  const pid_t compiler = process();
  const std::int64_t before = processor_milliseconds(compiler);
  pollfd watched{socket(), POLLIN, 0};
  for (int look = 0; look < most_looks; ++look) {
    const int ready = poll(&watched, 1, look_milliseconds);
    if (ready > 0) return true;  // an answer, or its end
    if (ready < 0 && errno != EINTR) return false;
    const std::int64_t now = processor_milliseconds(compiler);
    if (now < 0 || now - before >= most_milliseconds) return false;
  }
  return false;
}

// It stays open while mutex_ is held: only who holds that closes it.
int CompilerProcess::socket() {
  const gpupool::MutexLock lock(process_mutex_);
  return socket_;
}

void CompilerProcess::end() {
  const gpupool::MutexLock lock(process_mutex_);
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  process_.end();
}

void CompilerProcess::abandon() {
  const gpupool::MutexLock lock(process_mutex_);
  abandoned_ = true;
  // The thread that waits for an answer finds the end of the stream, and puts things in order.
  process_.kill();
  if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
}

pid_t CompilerProcess::process() {
  const gpupool::MutexLock lock(process_mutex_);
  return process_.number();
}

}  // namespace softgpu::jit
