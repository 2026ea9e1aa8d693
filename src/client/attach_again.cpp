#include "client/attach_again.h"

#include <atomic>
#include <csignal>

#include "client/runtime.h"

namespace gpupool::client {
namespace {

using Program = int (*)();
std::atomic<Program> program{nullptr};

/// Calls made by the function itself are refused as if there were none; so are those of the runtime's own
/// threads.
thread_local bool excluded = false;

}  // namespace

void on_unattached(int (*wanted)()) {
  program.store(wanted);
}

bool may_attach_again() {
  return !excluded && program.load() != nullptr;
}

bool attach_again() {
  const Program ask = program.load();
  if (ask == nullptr || excluded) return false;
  excluded = true;
  const auto answer = static_cast<AttachAnswer>(ask());
  excluded = false;
  // Not earlier: an interpreter would deal with it inside the function, where nobody sees it.
  if (answer == AttachAnswer::interrupted) static_cast<void>(std::raise(SIGINT));
  return answer == AttachAnswer::attached;
}

bool never_attaches_again() {
  return excluded;
}

void never_attach_again() {
  excluded = true;
}

bool Runtime::wants_lease() {
  const std::lock_guard lock(mutex_);
  if (ready_.load()) return false;
  std::string error;
  const auto file = read_file(error);
  return file && session_.wants_lease(*file);
}

CUresult Runtime::attach_for_call() {
  if (forked() || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  // More than once: a lease that the file names may turn out to be over.
  CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const LeaseWait waited = await_lease();
    if (waited == LeaseWait::interrupted) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (waited == LeaseWait::came) attempt = 0;
    const bool may = may_attach_again();
    if (may && wants_lease() && !attach_again()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    result = attach();
    if (result != CUDA_ERROR_DEVICE_UNAVAILABLE ||
        (!may && waited == LeaseWait::none && prospect() == SessionState::Prospect::none)) {
      break;
    }
  }
  return result;
}

}  // namespace gpupool::client
