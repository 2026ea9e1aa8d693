// Streams that were given work since it was last known that they had finished.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <map>
#include <vector>

#include "worker/driver/driver.h"

namespace gpupool::worker {

/// Tells whether waiting for a context would take time: the driver has no such question. The executing thread
/// alone uses it.
class BusyStreams {
 public:
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
      busy.untold = true;
    }
  }
  /// The stream is about to go; its work may go on.
  void forget(CUstream stream) {
    last_context_ = nullptr;
    for (auto& [context, busy] : contexts_) {
      if (std::erase(busy.streams, stream) != 0) busy.untold = true;
    }
  }
  /// The context is about to go, and its streams with it, wherever a client may have named them.
  void forget_context(CUcontext gone) {
    last_context_ = nullptr;
    contexts_.erase(gone);
    for (auto& [context, busy] : contexts_) {
      busy.untold = busy.untold || !busy.streams.empty();
      busy.streams.clear();
    }
  }
  /// Waiting for the context begins: what cannot be told apart is finished with it.
  void waits(CUcontext context) {
    const auto found = contexts_.find(context);
    if (found != contexts_.end()) found->second.untold = false;
  }
  /// `context` must be current.
  [[nodiscard]] bool idle(CUcontext context) {
    const auto found = contexts_.find(context);
    if (found == contexts_.end()) return true;
    if (found->second.untold) return false;
    last_context_ = nullptr;
    // An error is told by the waiting itself. A question about a stream that is captured would end the
    // capture.
    std::erase_if(found->second.streams, [&](CUstream stream) {
      return captured(stream) || api_.cuStreamQuery_(stream) != CUDA_ERROR_NOT_READY;
    });
    return found->second.streams.empty();
  }
  /// Waits for what is known to be in the streams of `context`, which must be current, except for captured
  /// ones: while one of its streams is captured, waiting for the context is forbidden.
  CUresult finish(CUcontext context) {
    CUresult first = CUDA_SUCCESS;
    for (const CUstream stream : contexts_[context].streams) {
      if (captured(stream)) continue;
      const CUresult result = api_.cuStreamSynchronize_(stream);
      if (first == CUDA_SUCCESS) first = result;
    }
    return first;
  }

 private:
  [[nodiscard]] bool captured(CUstream stream) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return stream != nullptr && stream != CU_STREAM_LEGACY &&
           api_.cuStreamIsCapturing_(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

  static constexpr std::size_t most = 16;
  struct Busy {
    std::vector<CUstream> streams;
    bool untold = false;  ///< there may be work in streams that are not in the list
  };

  const DriverApi& api_;
  std::map<CUcontext, Busy> contexts_;
  CUcontext last_context_ = nullptr;  // of the last call of work(): most work goes where the last went
  CUstream last_stream_ = nullptr;
};

}  // namespace gpupool::worker
