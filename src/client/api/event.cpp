// Events.
#include <cuda.h>

#include "client/call/call.h"
#include "client/call/capture.h"
#include "client/call/objects.h"
#include "client/memory/arriving_copies.h"
#include "client/memory/exported_objects.h"
#include "client/progress/completion.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

template <class M>
CUresult record(CUevent event, CUstream stream, M& m) {
  Event* const found = tables().events.find(raw(event));
  if (found == nullptr) return bad_handle(wire::Kind::event);
  if (!known(wire::Kind::stream, stream)) return bad_handle(wire::Kind::stream);
  std::uint64_t context = 0, place = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  // An event and a stream of different nodes have no context in common.
  if (&worker_of_context(found->context) != &worker_of_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  m.hEvent = raw(event);
  m.hStream = raw(stream);
  const bool before = captures_are_open();
  if (const CUresult bad = post(m, context, {}, &place); bad != CUDA_SUCCESS) return bad;
  const Stream* const made = tables().streams.find(m.hStream);
  // The driver refuses an event of another context; then waiting for it says nothing about the stream.
  const bool at_home = (made == nullptr ? context : made->context) == found->context;
  found->recorded(at_home ? m.hStream : Event::nowhere, place);
  found->captured.exchange(before || captures_are_open() ? 1 : 0);
  return CUDA_SUCCESS;
}

/// No node hears of an event of another one: the program waits instead of the stream, before the stream is
/// given anything else.
CUresult wait_across(CUstream stream, CUevent event) {
  bool capturing = false;
  if (const CUresult bad = is_capturing(stream, capturing); bad != CUDA_SUCCESS) return bad;
  if (capturing) return refuse_mixed("cuStreamWaitEvent", "a graph that waits for another node");
  return cuEventSynchronize(event);
}

}  // namespace

namespace gpupool::client::api {

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  runtime().begin_if_over();
  constexpr unsigned known_flags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & ~known_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool shared = (Flags & CU_EVENT_INTERPROCESS) != 0;
  if (shared && (Flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  Event* made = nullptr;
  const std::uint64_t handle = tables().events.mint(made);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->flags = Flags;
  made->context = context;
  if (shared) made->elsewhere.raise(1);
  messages::cuEventCreate m;
  m.phEvent = handle;
  m.Flags = Flags;
  if (const CUresult bad = post(m, context); bad != CUDA_SUCCESS) {
    tables().events.drop(handle);
    return bad;
  }
  *phEvent = handle_as<CUevent>(handle);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  runtime().begin_if_over();
  const Event* const event = tables().events.find(raw(hEvent));
  if (event == nullptr) return bad_handle(wire::Kind::event);
  if ((event->flags & CU_EVENT_INTERPROCESS) != 0)
    end_export(ExportKind::event, worker_of_context(event->context).first_device, raw(hEvent));
  messages::cuEventDestroy_v2 m;
  m.hEvent = raw(hEvent);
  return destroy(tables().events, m.hEvent, m, event->context);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  runtime().begin_if_over();
  messages::cuEventRecord m;
  return record(hEvent, hStream, m);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  runtime().begin_if_over();
  messages::cuEventRecordWithFlags m;
  m.flags = flags;
  const CUresult result = record(hEvent, hStream, m);
  if (result == CUDA_SUCCESS && (flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
    if (Event* const event = tables().events.find(raw(hEvent))) event->elsewhere.raise(1);
  }
  return result;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  runtime().begin_if_over();
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  const Event* const event = tables().events.find(raw(hEvent));
  if (event == nullptr) return bad_handle(wire::Kind::event);
  if (runtime().several() && &worker_of_stream(hStream) != &worker_of_context(event->context)) {
    return wait_across(hStream, hEvent);
  }
  messages::cuStreamWaitEvent m;
  m.hStream = raw(hStream);
  m.hEvent = raw(hEvent);
  m.Flags = Flags;
  return post(m);
}

CUresult cuEventQuery(CUevent hEvent) {
  runtime().begin_if_over();
  return query_event(hEvent);
}

CUresult cuEventSynchronize(CUevent hEvent) {
  runtime().begin_if_over();
  Event* const event = tables().events.find(raw(hEvent));
  if (event == nullptr) return bad_handle(wire::Kind::event);
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  if (known_done(*event)) return found_done(event->context);
  arriving_copies().stream_awaited(event->stream.get(), event->context);
  messages::cuEventSynchronize m;
  m.hEvent = raw(hEvent);
  replies::cuEventSynchronize reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  std::uint64_t place = 0;
  const CUresult result = ask(m, reply, event->context, bytes, {}, nullptr, &own, &place);
  if (own == CUDA_SUCCESS) note_event_done(*event, place);
  return result;
}

}  // namespace gpupool::client::api
