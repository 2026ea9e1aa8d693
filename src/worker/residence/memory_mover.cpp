#include "worker/residence/memory_mover.h"

#include <algorithm>
#include <cstdio>

namespace gpupool::worker {

std::string word_for(CUresult error) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "out-of-memory";
    case CUDA_ERROR_INVALID_VALUE:
      return "not-the-same-kind-of-device";
    case CUDA_ERROR_NOT_SUPPORTED:
      return "not-supported";
    case CUDA_ERROR_ILLEGAL_STATE:
      return "illegal-state";
    default:
      return "error-" + std::to_string(static_cast<int>(error));
  }
}

MoveResult MemoryMover::stays(const std::string& refusal) {
  place_.stays();
  residence_.open();
  return {refusal};
}

/// The driver's state is beyond repair: so is the session.
MoveResult MemoryMover::give_up(const char* step, CUresult why) {
  std::fprintf(stderr,
               "gpupool-worker: %s of the device memory failed (%s): the driver gives the process up\n", step,
               word_for(why).c_str());
  place_.lost();
  MoveResult result{"failed why=" + word_for(why)};
  result.lost = true;
  return result;
}

MoveResult MemoryMover::failed_checkpoint(CUresult why) {
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  const CUresult asked = checkpoint_->state(state);
  if (asked != CUDA_SUCCESS || state != CU_PROCESS_STATE_LOCKED || checkpoint_->unlock() != CUDA_SUCCESS) {
    return give_up("the checkpoint", why);
  }
  if (why == CUDA_ERROR_NOT_SUPPORTED) {
    able_ = false;  // some platforms have the calls and say so only here
    return stays("old-driver");
  }
  return stays("failed why=" + word_for(why));
}

MoveResult MemoryMover::park(std::chrono::milliseconds patience, const std::function<std::string()>& refusal,
                             const std::function<std::uint64_t()>& bytes) {
  if (place_.in_host()) return {"", place_.bytes()};
  if (!able()) return {"old-driver"};
  if (!place_.begin_parking()) return {"failed why=lost"};
  if (!residence_.close(patience)) {
    place_.stays();
    return {"busy"};
  }
  if (const std::string reason = refusal(); !reason.empty()) return stays(reason);
  const std::uint64_t size = bytes();
  const auto limit = static_cast<unsigned>(std::max<std::int64_t>(patience.count(), 1));
  const CUresult locked = checkpoint_->lock(limit);
  if (locked == CUDA_ERROR_NOT_READY) return stays("busy");
  if (locked == CUDA_ERROR_NOT_SUPPORTED) {
    able_ = false;
    return stays("old-driver");
  }
  if (locked != CUDA_SUCCESS) return stays("failed why=" + word_for(locked));
  if (const CUresult saved = checkpoint_->save(); saved != CUDA_SUCCESS) return failed_checkpoint(saved);
  place_.parked(size);
  return {"", size};
}

MoveResult MemoryMover::resume(const std::vector<CUcheckpointGpuPair>& pairs,
                               const std::function<void()>& moved) {
  if (!place_.begin_resuming()) return {"failed why=lost"};
  if (const CUresult restored = checkpoint_->restore(pairs); restored != CUDA_SUCCESS) {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    if (checkpoint_->state(state) != CUDA_SUCCESS || state != CU_PROCESS_STATE_CHECKPOINTED) {
      return give_up("the restore", restored);
    }
    place_.stays();  // in the host: another attempt may find room
    return {"resume-failed why=" + word_for(restored)};
  }
  moved();
  if (const CUresult unlocked = checkpoint_->unlock(); unlocked != CUDA_SUCCESS) {
    return give_up("the unlocking", unlocked);
  }
  place_.resumed();
  residence_.open();
  return {};
}

}  // namespace gpupool::worker
