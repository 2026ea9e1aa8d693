// The process checkpoint API, for this process. Another process's pid is refused: its device memory is out of
// reach.
#include <unistd.h>

#include <algorithm>

#include "softgpu/driver/entry.h"

using namespace softgpu::driver;

namespace {

// Not entry(): these calls must work while the gate is closed.
template <class Body>
CUresult checkpoint_entry(int pid, Body&& body) {
  if (!Driver::get().usable()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pid != getpid()) return CUDA_ERROR_NOT_SUPPORTED;
  return entry_any_time([&] { body(Driver::get().checkpoint); });
}

bool is_identity(const CUcheckpointGpuPair& pair) {
  return std::equal(std::begin(pair.oldUuid.bytes), std::end(pair.oldUuid.bytes),
                    std::begin(pair.newUuid.bytes));
}

}  // namespace

CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  return checkpoint_entry(pid, [&](Checkpoint& checkpoint) {
    require(state != nullptr);
    *state = checkpoint.state();
  });
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  return checkpoint_entry(pid, [&](Checkpoint& checkpoint) { checkpoint.lock(args ? args->timeoutMs : 0); });
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* args) {
  return checkpoint_entry(pid, [&](Checkpoint& checkpoint) {
    require(!args || !args->customStorageInfo_out, CUDA_ERROR_NOT_SUPPORTED);
    checkpoint.save();
  });
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  return checkpoint_entry(pid, [&](Checkpoint& checkpoint) {
    if (args) {
      require(!args->customStorageInfo_out, CUDA_ERROR_NOT_SUPPORTED);
      require(args->gpuPairs || args->gpuPairsCount == 0);
      // A session stays on its software device; there is nothing to gain from another one of the same
      // machine.
      for (unsigned i = 0; i < args->gpuPairsCount; ++i) {
        require(is_identity(args->gpuPairs[i]), CUDA_ERROR_NOT_SUPPORTED);
      }
    }
    checkpoint.restore();
  });
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) {
  return checkpoint_entry(pid, [&](Checkpoint& checkpoint) { checkpoint.unlock(); });
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  return checkpoint_entry(pid, [&](Checkpoint&) {
    require(tid != nullptr);
    *tid = gettid();
  });
}
