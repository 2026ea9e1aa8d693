// A process that is not among the children of the program that starts it: the program's `wait` does not find
// it, and no SIGCHLD tells of it. Programs that wait for whatever child ends must not meet one that they do
// not know.
#pragma once

#include <spawn.h>
#include <sys/types.h>

namespace softgpu::jit {

class HiddenProcess {
 public:
  HiddenProcess() = default;
  ~HiddenProcess() { end(); }
  HiddenProcess(const HiddenProcess&) = delete;
  HiddenProcess& operator=(const HiddenProcess&) = delete;

  // As posix_spawn, which returns 0 or an error's number. One that was started before is ended.
  [[nodiscard]] int start(const char* path, const posix_spawn_file_actions_t& files,
                          const posix_spawnattr_t& attributes, char* const arguments[],
                          char* const environment[]);
  // -1: there is none.
  [[nodiscard]] pid_t number() const { return number_; }
  // Kills it, where the kernel knows handles of processes (Linux 5.3): by its number another could be meant.
  void kill();
  // The same, and forgets it.
  void end();

 private:
  pid_t number_ = -1;
  int handle_ = -1;  // of the process itself; -1: the kernel has none
};

}  // namespace softgpu::jit
