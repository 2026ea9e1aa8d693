// LLVM in a process of its own: what it does to itself (an abort, a crash, a function without end) ends that
// process, and the kernel in question stays interpreted. It is started by the first kernel that is compiled,
// ends when nothing has been asked for a while (it holds about 100 MB), and is started again when need be. It
// ends with its socket, and is none of the program's children.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "softgpu/jit/hidden_process.h"

namespace softgpu::jit {

// The program that compiles, beside this library; GPUPOOL_SOFTGPU_JIT_COMPILER names another one.
inline constexpr std::string_view compiler_name = "gpupool-softgpu-jit";

class CompilerProcess {
 public:
  CompilerProcess() = default;
  ~CompilerProcess();
  CompilerProcess(const CompilerProcess&) = delete;
  CompilerProcess& operator=(const CompilerProcess&) = delete;

  // Names library, version and processor: what decides about the code that is made. Starts the process if
  // need be; empty, with the reason in `problem`, if there is no compiler. That is not tried again.
  [[nodiscard]] std::string identity(std::string& problem);
  // An ELF object. On failure empty, with the reason in `error`.
  [[nodiscard]] std::optional<std::vector<std::byte>> compile(const std::string& text, std::string& error);
  // Ends the process, also while another thread waits for it; nothing is compiled any more.
  void abandon();
  // -1: it is not running, as far as is known.
  [[nodiscard]] pid_t process();

 private:
  bool start(std::string& problem) REQUIRES(mutex_);
  int socket();
  // Whether something to read arrives before the compiler has computed for so long.
  [[nodiscard]] bool answers(int most_milliseconds);
  void end();

  gpupool::Mutex mutex_;          // one question at a time
  gpupool::Mutex process_mutex_;  // taken after mutex_, for a moment
  int socket_ GUARDED_BY(process_mutex_) = -1;
  HiddenProcess process_ GUARDED_BY(process_mutex_);
  bool abandoned_ GUARDED_BY(process_mutex_) = false;
  bool hopeless_ GUARDED_BY(mutex_) = false;
  std::string identity_ GUARDED_BY(mutex_), problem_ GUARDED_BY(mutex_);
};

}  // namespace softgpu::jit
