#include "worker/driver/process_checkpoint.h"

#include <dlfcn.h>
#include <unistd.h>

namespace gpupool::worker {
namespace {

class DriverCheckpoint final : public ProcessCheckpoint {
 public:
  bool load(void* library) {
    return find(library, get_state_, "cuCheckpointProcessGetState") &&
           find(library, lock_, "cuCheckpointProcessLock") &&
           find(library, checkpoint_, "cuCheckpointProcessCheckpoint") &&
           find(library, restore_, "cuCheckpointProcessRestore") &&
           find(library, unlock_, "cuCheckpointProcessUnlock");
  }

  CUresult lock(unsigned timeout_ms) override {
    CUcheckpointLockArgs arguments{};
    arguments.timeoutMs = timeout_ms;
    return lock_(::getpid(), &arguments);
  }
  CUresult save() override {
    CUcheckpointCheckpointArgs arguments{};
    return checkpoint_(::getpid(), &arguments);
  }
  CUresult restore(std::vector<CUcheckpointGpuPair> pairs) override {
    // Drivers before 580 know no pairs: they get no arguments at all.
    if (pairs.empty()) return restore_(::getpid(), nullptr);
    CUcheckpointRestoreArgs arguments{};
    arguments.gpuPairs = pairs.data();
    arguments.gpuPairsCount = static_cast<unsigned>(pairs.size());
    return restore_(::getpid(), &arguments);
  }
  CUresult unlock() override {
    CUcheckpointUnlockArgs arguments{};
    return unlock_(::getpid(), &arguments);
  }
  CUresult state(CUprocessState& out) override { return get_state_(::getpid(), &out); }

 private:
  template <class Function>
  static bool find(void* library, Function& out, const char* name) {
    out = reinterpret_cast<Function>(dlsym(library, name));
    return out != nullptr;
  }

  decltype(&cuCheckpointProcessGetState) get_state_ = nullptr;
  decltype(&cuCheckpointProcessLock) lock_ = nullptr;
  decltype(&cuCheckpointProcessCheckpoint) checkpoint_ = nullptr;
  decltype(&cuCheckpointProcessRestore) restore_ = nullptr;
  decltype(&cuCheckpointProcessUnlock) unlock_ = nullptr;
};

}  // namespace

std::unique_ptr<ProcessCheckpoint> open_process_checkpoint(void* driver_library) {
  auto checkpoint = std::make_unique<DriverCheckpoint>();
  CUprocessState state{};
  if (!checkpoint->load(driver_library) || checkpoint->state(state) != CUDA_SUCCESS) return nullptr;
  return checkpoint;
}

}  // namespace gpupool::worker
