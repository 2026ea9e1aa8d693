// Handlers of the calls that wait, or have a stream wait, and do nothing else.
#include "generated/handlers.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {

CUresult run_SynchronizeContext(Call& x, const messages::SynchronizeContext& m,
                                replies::SynchronizeContext&) {
  CUcontext context = nullptr;
  if (!x.handles.find(wire::Kind::context, m.context, context)) return CUDA_ERROR_INVALID_CONTEXT;
  x.waits();
  x.leave({[finished = x.work.wait_for({context})](Answer&) { return finished(); },
           [&session = x.session, context] { return session.idle(context); },
           {context},
           context});
  return CUDA_SUCCESS;
}

CUresult run_cuStreamSynchronize(Call& x, const messages::cuStreamSynchronize& m,
                                 replies::cuStreamSynchronize&) {
  CUstream stream = nullptr;
  if (!x.handles.find(wire::Kind::stream, m.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  x.waits();
  x.leave({[&api = x.api, stream](Answer&) { return api.cuStreamSynchronize_(stream); },
           [&api = x.api, stream] { return api.cuStreamQuery_(stream) != CUDA_ERROR_NOT_READY; },
           {stream, x.current()},
           nullptr});
  return CUDA_SUCCESS;
}

CUresult run_cuStreamWaitEvent(Call& x, const messages::cuStreamWaitEvent& m, replies::cuStreamWaitEvent&) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  if (!x.handles.find(wire::Kind::stream, m.hStream, stream) ||
      !x.handles.find(wire::Kind::event, m.hEvent, event))
    return CUDA_ERROR_INVALID_HANDLE;
  x.work.waits_in(stream, !x.session.graphs.captures.empty());
  return x.api.cuStreamWaitEvent_(stream, event, m.Flags);
}

CUresult run_cuEventSynchronize(Call& x, const messages::cuEventSynchronize& m,
                                replies::cuEventSynchronize&) {
  CUevent event = nullptr;
  if (!x.handles.find(wire::Kind::event, m.hEvent, event)) return CUDA_ERROR_INVALID_HANDLE;
  x.waits();
  x.leave({[&api = x.api, event](Answer&) { return api.cuEventSynchronize_(event); },
           [&api = x.api, event] { return api.cuEventQuery_(event) != CUDA_ERROR_NOT_READY; },
           {event, x.current()},
           nullptr});
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker
