// Handlers of the calls that record an event.
#include "generated/handlers.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {
namespace {

/// Recorded into a capture, the event tells nothing of the device, and a question about it would end the
/// capture. The program may have asked before, about an earlier record, and nobody may ask on for it.
template <class Record>
CUresult record(Call& x, std::uint64_t event_name, std::uint64_t stream_name, unsigned flags, Record record) {
  CUevent event = nullptr;
  CUstream stream = nullptr;
  if (!x.handles.find(wire::Kind::event, event_name, event) ||
      !x.handles.find(wire::Kind::stream, stream_name, stream))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = x.submits(stream); bad != CUDA_SUCCESS) return bad;
  if (!x.session.captures(stream)) {
    x.session.graphs.captured_events.erase(event);
  } else if ((flags & CU_EVENT_RECORD_EXTERNAL) == 0) {  // which is work of the graph, done when it runs
    x.conversation.completions.forget(event, CUDA_ERROR_CAPTURED_EVENT);
    x.session.graphs.captured_events.insert(event);
  }
  return record(event, stream);
}

}  // namespace

CUresult run_cuEventRecord(Call& x, const messages::cuEventRecord& m, replies::cuEventRecord&) {
  return record(x, m.hEvent, m.hStream, CU_EVENT_RECORD_DEFAULT,
                [&](CUevent event, CUstream stream) { return x.api.cuEventRecord_(event, stream); });
}

CUresult run_cuEventRecordWithFlags(Call& x, const messages::cuEventRecordWithFlags& m,
                                    replies::cuEventRecordWithFlags&) {
  return record(x, m.hEvent, m.hStream, m.flags, [&](CUevent event, CUstream stream) {
    return x.api.cuEventRecordWithFlags_(event, stream, m.flags);
  });
}

}  // namespace gpupool::worker
