// Takes the session's device memory to the host and back, step by step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "worker/driver/process_checkpoint.h"
#include "worker/lease/worker_state.h"
#include "worker/residence/memory_place.h"
#include "worker/residence/residence.h"

namespace gpupool::worker {

/// One thread at a time moves; `place` may be looked at by any.
class MemoryMover {
 public:
  /// Null: the driver cannot.
  MemoryMover(std::unique_ptr<ProcessCheckpoint> checkpoint, Residence& residence)
      : checkpoint_(std::move(checkpoint)), residence_(residence), able_(checkpoint_ != nullptr) {}

  /// Whether the driver can, as far as is known: one may only say no when it is to do it.
  [[nodiscard]] bool able() const { return able_.load(); }
  [[nodiscard]] const MemoryPlace& place() const { return place_; }

  /// Nobody visits the residence while `refusal` is asked for the last time whether something stands in the
  /// way; empty: nothing does. `bytes` is what will lie in the host.
  MoveResult park(std::chrono::milliseconds patience, const std::function<std::string()>& refusal,
                  const std::function<std::uint64_t()>& bytes);
  /// `moved` is called when memory is back and before anybody may visit it.
  MoveResult resume(const std::vector<CUcheckpointGpuPair>& pairs, const std::function<void()>& moved);

 private:
  MoveResult stays(const std::string& refusal);
  MoveResult give_up(const char* step, CUresult why);
  MoveResult failed_checkpoint(CUresult why);

  std::unique_ptr<ProcessCheckpoint> checkpoint_;
  Residence& residence_;
  std::atomic<bool> able_;
  MemoryPlace place_;
};

/// An error of the driver as one word: `out-of-memory`, `error-304`.
[[nodiscard]] std::string word_for(CUresult error);

}  // namespace gpupool::worker
