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
#include "worker/driver/current.h"
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
    // The legacy stream always: while a capture is open that it waits for, nobody can ask whether it has
    // work.
    if (busy.streams.size() < most || is_legacy(stream)) {
      busy.streams.push_back(stream);
    } else {
      busy.untold = ++marks_;
    }
  }
  /// `stream` of the current `context` is about to go or to be captured: nobody can ask it or wait for it
  /// then, and its work may go on. finish() waits for that by an event.
  void leave(CUcontext context, CUstream stream) {
    if (is_legacy(stream)) return;  // which cannot be captured itself
    last_context_ = nullptr;
    for (auto& [given, busy] : contexts_) {
      const bool listed = std::erase(busy.streams, stream) != 0;
      if (!listed && (given != context || busy.untold <= busy.finished->load())) continue;
      const Current current(api_, given);
      if (!may_work(stream)) continue;
      busy.untold = ++marks_;
      record_end(busy, stream);
    }
  }
  /// A stream is about to be captured: legacy streams that wait for it cannot be asked until that is over.
  void before_capture() {
    for (auto& [context, busy] : contexts_) {
      const Current current(api_, context);
      for (const CUstream stream : busy.streams) {
        if (is_legacy(stream) && may_work(stream)) record_end(busy, stream);
      }
    }
  }
  /// The context is about to go, and its streams with it, wherever a client may have named them.
  void forget_context(CUcontext gone) {
    last_context_ = nullptr;
    if (const auto found = contexts_.find(gone); found != contexts_.end()) {
      for (const CUevent end : found->second.ends) static_cast<void>(api_.cuEventDestroy_v2_(end));
      contexts_.erase(found);
    }
    for (auto& [context, busy] : contexts_) {
      // Each context has a legacy stream of its own.
      const auto gone_with_it = [](CUstream stream) { return !is_legacy(stream); };
      if (std::erase_if(busy.streams, gone_with_it) != 0) busy.untold = ++marks_;
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
      if (in_capture(api_, stream)) return !is_legacy(stream);
      return api_.cuStreamQuery_(stream) != CUDA_ERROR_NOT_READY;
    });
    return found->second.streams.empty();
  }
  /// While a stream is captured, waiting for `context` is forbidden. This waits for the work of its streams
  /// that are listed, and of those that have left. The context must be current. Living streams that are in no
  /// list are the caller's to wait for.
  CUresult finish(CUcontext context) {
    const auto found = contexts_.find(context);
    if (found == contexts_.end()) return CUDA_SUCCESS;
    CUresult first = CUDA_SUCCESS;
    for (const CUevent end : std::exchange(found->second.ends, {})) {
      const CUresult result = api_.cuEventSynchronize_(end);
      if (first == CUDA_SUCCESS) first = result;
      static_cast<void>(api_.cuEventDestroy_v2_(end));
    }
    for (const CUstream stream : found->second.streams) {
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
    std::vector<CUevent> ends;  ///< behind the work of streams that have left
    std::size_t swept = 0;      ///< how many of them there were when those that are complete went last
    Mark untold = 0;            ///< of the last work in a stream that is not in the list
    /// Up to which mark such work is finished.
    std::shared_ptr<std::atomic<Mark>> finished = std::make_shared<std::atomic<Mark>>(0);
  };

  static bool is_legacy(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

  /// Whether `stream` of the current context has work, as far as it may be asked.
  bool may_work(CUstream stream) {
    return in_capture(api_, stream) || api_.cuStreamQuery_(stream) == CUDA_ERROR_NOT_READY;
  }
  /// Behind what `stream` of the current context was given. One that is captured has its end already.
  void record_end(Busy& busy, CUstream stream) {
    if (in_capture(api_, stream)) return;
    CUevent end = nullptr;
    CUresult result = api_.cuEventCreate_(&end, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    if (result == CUDA_SUCCESS) {
      result = api_.cuEventRecord_(end, stream);
      if (result != CUDA_SUCCESS) static_cast<void>(api_.cuEventDestroy_v2_(end));
    }
    if (result != CUDA_SUCCESS) {
      static_cast<void>(api_.cuStreamSynchronize_(stream));
      return;
    }
    busy.ends.push_back(end);
    if (busy.ends.size() < 2 * busy.swept + most) return;
    std::erase_if(busy.ends, [&](CUevent one) {
      if (api_.cuEventQuery_(one) == CUDA_ERROR_NOT_READY) return false;
      static_cast<void>(api_.cuEventDestroy_v2_(one));
      return true;
    });
    busy.swept = busy.ends.size();
  }

  const DriverApi& api_;
  std::map<CUcontext, Busy> contexts_;
  Mark marks_ = 0;
  CUcontext last_context_ = nullptr;  // of the last call of work(): most work goes where the last went
  CUstream last_stream_ = nullptr;
};

}  // namespace gpupool::worker
