// Streams that were given work since it was last known that they had finished.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "worker/driver/capture.h"
#include "worker/driver/driver.h"

namespace gpupool::worker {

/// Tells whether waiting for a context would take time: the driver has no such question. The executing thread
/// alone uses it.
class BusyStreams {
 private:
  using Mark = std::uint64_t;  // grows with each piece of work that no stream in a list stands for

 public:
  /// A wait for a context, from its beginning. Any thread says that it has ended.
  class Awaited {
   public:
    Awaited() = default;
    /// All that the context had been given when the wait began is finished.
    void ended() const {
      if (finished_ == nullptr) return;
      Mark now = finished_->load();
      while (now < until_ && !finished_->compare_exchange_weak(now, until_)) {
      }
    }

   private:
    friend class BusyStreams;
    Awaited(std::shared_ptr<std::atomic<Mark>> finished, Mark until)
        : finished_(std::move(finished)), until_(until) {}

    std::shared_ptr<std::atomic<Mark>> finished_;
    Mark until_ = 0;
  };

  explicit BusyStreams(const DriverApi& api) : api_(api) {}

  void work(CUcontext context, CUstream stream) {
    if (context == last_context_ && stream == last_stream_) return;
    last_context_ = context;
    last_stream_ = stream;
    Busy& busy = contexts_[context];
    if (std::find(busy.streams.begin(), busy.streams.end(), stream) != busy.streams.end()) return;
    if (busy.streams.size() < most) {
      busy.streams.push_back(stream);
    } else {
      busy.untold = ++marks_;
    }
  }
  /// The stream is about to go; its work may go on.
  void forget(CUstream stream) {
    last_context_ = nullptr;
    for (auto& [context, busy] : contexts_) {
      if (std::erase(busy.streams, stream) != 0) busy.untold = ++marks_;
    }
  }
  /// The context is about to go, and its streams with it, wherever a client may have named them.
  void forget_context(CUcontext gone) {
    last_context_ = nullptr;
    contexts_.erase(gone);
    for (auto& [context, busy] : contexts_) {
      if (!busy.streams.empty()) busy.untold = ++marks_;
      busy.streams.clear();
    }
  }
  /// Waiting for the context begins: what cannot be told apart is finished once that has ended.
  [[nodiscard]] Awaited awaits(CUcontext context) {
    last_context_ = nullptr;  // what comes from now on is not waited for
    const auto found = contexts_.find(context);
    return found == contexts_.end() ? Awaited() : Awaited(found->second.finished, found->second.untold);
  }
  /// `context` must be current.
  [[nodiscard]] bool idle(CUcontext context) {
    const auto found = contexts_.find(context);
    return found == contexts_.end() ||
           (found->second.untold <= found->second.finished->load() && listed_idle(context));
  }
  /// Whether the streams that are known have finished; there may be work in others. `context` must be
  /// current.
  [[nodiscard]] bool listed_idle(CUcontext context) {
    const auto found = contexts_.find(context);
    if (found == contexts_.end()) return true;
    last_context_ = nullptr;
    // An error is told by the waiting itself. What the legacy stream was given before a capture may go on.
    std::erase_if(found->second.streams, [&](CUstream stream) {
      if (in_capture(api_, stream)) return stream != nullptr && stream != CU_STREAM_LEGACY;
      return api_.cuStreamQuery_(stream) != CUDA_ERROR_NOT_READY;
    });
    return found->second.streams.empty();
  }
  /// Waits for what is known to be in the streams of `context`, which must be current, except for captured
  /// ones: while one of its streams is captured, waiting for the context is forbidden.
  CUresult finish(CUcontext context) {
    CUresult first = CUDA_SUCCESS;
    for (const CUstream stream : contexts_[context].streams) {
      if (in_capture(api_, stream)) continue;
      const CUresult result = api_.cuStreamSynchronize_(stream);
      if (first == CUDA_SUCCESS) first = result;
    }
    return first;
  }

 private:
  static constexpr std::size_t most = 16;
  struct Busy {
    std::vector<CUstream> streams;
    Mark untold = 0;  ///< of the last work in a stream that is not in the list
    /// Up to which mark such work is finished.
    std::shared_ptr<std::atomic<Mark>> finished = std::make_shared<std::atomic<Mark>>(0);
  };

  const DriverApi& api_;
  std::map<CUcontext, Busy> contexts_;
  Mark marks_ = 0;
  CUcontext last_context_ = nullptr;  // of the last call of work(): most work goes where the last went
  CUstream last_stream_ = nullptr;
};

}  // namespace gpupool::worker
