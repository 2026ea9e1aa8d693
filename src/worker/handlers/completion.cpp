// Handlers of what is answered later by a push.
#include "generated/handlers.h"
#include "worker/conversation/call.h"
#include "worker/conversation/dispatch.h"
#include "worker/handlers/refuse_capture.h"

namespace gpupool::worker {

CUresult run_WatchEvent(Call& x, const messages::WatchEvent& m, replies::WatchEvent&) {
  CUevent event = nullptr;
  CUresult bad = CUDA_SUCCESS;
  if (!x.handles.find(wire::Kind::event, m.watch, event)) {
    bad = CUDA_ERROR_INVALID_HANDLE;
  } else if (x.session.graphs.captured_events.contains(event)) {
    bad = CUDA_ERROR_CAPTURED_EVENT;
  }
  const bool taken = bad == CUDA_SUCCESS ? x.conversation.completions.watch_event(m.watch, event, x.current())
                                         : x.conversation.completions.refuse_watch(m.watch, bad);
  return taken ? CUDA_SUCCESS : malformed;
}

CUresult run_WatchStream(Call& x, const messages::WatchStream& m, replies::WatchStream&) {
  CUstream stream = nullptr;
  const bool taken = x.handles.find(wire::Kind::stream, m.stream, stream)
                         ? x.conversation.completions.watch_stream(m.watch, stream, x.current())
                         : x.conversation.completions.refuse_watch(m.watch, CUDA_ERROR_INVALID_HANDLE);
  return taken ? CUDA_SUCCESS : malformed;
}

CUresult run_CopyToHostAsync(Call& x, const messages::CopyToHostAsync& m, replies::CopyToHostAsync&) {
  if (m.size == 0 || m.size > wire::largest_piece) return malformed;
  CUstream stream = nullptr;
  CUresult result = CUDA_SUCCESS;
  if (!x.handles.find(wire::Kind::stream, m.stream, stream)) {
    result = CUDA_ERROR_INVALID_HANDLE;
  } else if (!x.equipment.readable(m.address, m.size)) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else {
    result = refuse_capture(x, stream);
  }
  if (result != CUDA_SUCCESS) {
    x.conversation.completions.refuse_copy(m.ticket, result);
    return result;
  }
  if (const CUresult bad = x.submits(stream); bad != CUDA_SUCCESS) {
    x.conversation.completions.refuse_copy(m.ticket, bad);
    return bad;
  }
  return x.conversation.completions.copy(m.ticket, m.address, m.size, stream, x.current());
}

}  // namespace gpupool::worker
