// The process checkpoint API, for this process. Another process's pid is refused: its device memory is out of
// reach.
#include <unistd.h>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/memory/checkpoint.h"

using namespace softgpu::driver;

namespace {

// Not entry(): these calls must work while the gate is closed.
template <class Body>
CUresult checkpoint_entry(int pid, Body&& body) {
  if (!Driver::get().usable()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pid != getpid()) return CUDA_ERROR_NOT_SUPPORTED;
  return entry_any_time([&] { body(Checkpoint::of_process()); });
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
    Checkpoint::CardPairs pairs;
    if (args) {
      require(!args->customStorageInfo_out, CUDA_ERROR_NOT_SUPPORTED);
      require(args->gpuPairs || args->gpuPairsCount == 0);
      for (unsigned i = 0; i < args->gpuPairsCount; ++i) {
        pairs.emplace_back(args->gpuPairs[i].oldUuid, args->gpuPairs[i].newUuid);
      }
    }
    checkpoint.restore(pairs);
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
