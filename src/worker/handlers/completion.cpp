// Handlers of what is answered later by a push.
#include "generated/handlers.h"
#include "worker/objects/refuse_capture.h"
#include "worker/session/dispatch.h"
#include "worker/session/executor.h"

namespace gpupool::worker {

CUresult run_WatchEvent(Executor& x, const messages::WatchEvent& m, replies::WatchEvent&) {
  CUevent event = nullptr;
  const bool taken = x.handles.find(wire::Kind::event, m.watch, event)
                         ? x.completions.watch_event(m.watch, event, x.current())
                         : x.completions.refuse_watch(m.watch, CUDA_ERROR_INVALID_HANDLE);
  return taken ? CUDA_SUCCESS : malformed;
}

CUresult run_WatchStream(Executor& x, const messages::WatchStream& m, replies::WatchStream&) {
  CUstream stream = nullptr;
  const bool taken = x.handles.find(wire::Kind::stream, m.stream, stream)
                         ? x.completions.watch_stream(m.watch, stream, x.current())
                         : x.completions.refuse_watch(m.watch, CUDA_ERROR_INVALID_HANDLE);
  return taken ? CUDA_SUCCESS : malformed;
}

CUresult run_CopyToHostAsync(Executor& x, const messages::CopyToHostAsync& m, replies::CopyToHostAsync&) {
  if (m.size == 0 || m.size > wire::largest_piece) return malformed;
  CUstream stream = nullptr;
  CUresult result = CUDA_SUCCESS;
  if (!x.handles.find(wire::Kind::stream, m.stream, stream)) {
    result = CUDA_ERROR_INVALID_HANDLE;
  } else if (!x.readable(m.address, m.size)) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else {
    result = refuse_capture(x, stream);
  }
  if (result != CUDA_SUCCESS) {
    x.completions.refuse_copy(m.ticket, result);
    return result;
  }
  if (const CUresult bad = x.submits(stream); bad != CUDA_SUCCESS) {
    x.completions.refuse_copy(m.ticket, bad);
    return bad;
  }
  return x.completions.copy(m.ticket, m.address, m.size, stream, x.current());
}

}  // namespace gpupool::worker
