// What a session's devices are doing for it, for whoever shows it, ends it or waits behind it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "generated/wire/control.h"

namespace gpupool::worker {

using wire::WorkState;

struct WorkView {
  WorkState state = WorkState::none;
  std::string kernel;  ///< short name; of several in a burst the one that runs, where the driver tells, else
                       ///< the last; empty: a copy, a fill
  std::int64_t since_ns = 0;  ///< CLOCK_BOOTTIME; 0: nothing runs
};

/// An error that ends what a session can do on its devices until it is reset; CUDA calls such errors sticky.
struct SessionFailure {
  int error = 0;  ///< CUresult; 0: none
  std::string kernel;
};

/// Thread-safe. Written by the thread that measures, read by all.
class WorkUnderWay {
 public:
  void tell(WorkView view) {
    const std::lock_guard lock(mutex_);
    view_ = std::move(view);
  }
  [[nodiscard]] WorkView view() const {
    const std::lock_guard lock(mutex_);
    return view_;
  }
  /// The first failure counts: what follows it is its consequence.
  void failed(SessionFailure failure) {
    const std::lock_guard lock(mutex_);
    if (failure_.error == 0) failure_ = std::move(failure);
  }
  [[nodiscard]] SessionFailure failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  /// Whether a call waits for its turn on a device that other sessions use.
  std::atomic<bool> awaits_turn{false};

 private:
  mutable std::mutex mutex_;
  WorkView view_;
  SessionFailure failure_;
};

}  // namespace gpupool::worker
