// Events.
#include "softgpu/driver/stream/event.h"
#include "base/mutex.h"

#include <chrono>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

CUresult record(CUevent handle, CUstream stream_handle, unsigned flags) {
  return entry([&] {
    require((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) == 0);
    const auto event = registry<Event>().get(handle);
    const auto stream = resolve_stream(stream_handle);
    require(&event->context() == &stream->context(), CUDA_ERROR_INVALID_HANDLE);
    if (is_capturing(*stream)) {
      if (flags & CU_EVENT_RECORD_EXTERNAL) {
        require(event->shared() == nullptr, CUDA_ERROR_NOT_SUPPORTED);
        issue(stream, {CU_GRAPH_NODE_TYPE_EVENT_RECORD, EventRecord{event}, nullptr});
        return;
      }
      const gpupool::MutexLock order(stream->context().submit_mutex);
      event->set_captured(stream->capture, stream->capture_tail);
      return;
    }
    if (event->shared() != nullptr) {
      event->set_mark(stream->submit([recorded = SharedEvent::record(event->shared())] {}));
      return;
    }
    event->set_mark(stream->submit(nullptr));
  });
}

CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return entry([&]() -> CUresult {
    require(milliseconds != nullptr);
    const auto start = registry<Event>().get(start_handle);
    const auto end = registry<Event>().get(end_handle);
    const auto first = start->mark();
    const auto second = end->mark();
    require(first && second && start->timed() && end->timed(), CUDA_ERROR_INVALID_HANDLE);
    start->context().check_usable();
    if (!first->done() || !second->done()) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(second->finished() - first->finished()).count();
    return CUDA_SUCCESS;
  });
}

// Waiting for what is only recorded spoils the capture.
void refuse_captured(const Event& event) {
  const auto capture = event.captured_in();
  if (capture == nullptr) return;
  const gpupool::MutexLock order(event.context().submit_mutex);
  capture->invalidated = true;
  fail(CUDA_ERROR_CAPTURED_EVENT);
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  return entry([&] {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    require(phEvent != nullptr && (Flags & ~known) == 0);
    const bool shared = (Flags & CU_EVENT_INTERPROCESS) != 0;
    require(!shared || (Flags & CU_EVENT_DISABLE_TIMING) != 0);
    const auto context = current_context();
    *phEvent = registry<Event>().add<CUevent>(
        std::make_shared<Event>(context, Flags, shared ? SharedEvent::make() : nullptr));
  });
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  return entry([&] { registry<Event>().take(hEvent); });
}

CUresult cuEventDestroy(CUevent hEvent) {
  return cuEventDestroy_v2(hEvent);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return record(hEvent, hStream, 0);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return record(hEvent, hStream, flags);
}

CUresult cuEventQuery(CUevent hEvent) {
  return entry([&]() -> CUresult {
    const auto event = registry<Event>().get(hEvent);
    refuse_captured(*event);
    event->context().check_usable();
    if (const auto& shared = event->shared())
      return shared->done(shared->last()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    const auto mark = event->mark();
    return !mark || mark->done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return entry([&] {
    const auto event = registry<Event>().get(hEvent);
    refuse_captured(*event);
    if (const auto& shared = event->shared()) {
      shared->wait(shared->last(), [&event] { return event->context().gives_up(); });
    } else if (const auto mark = event->mark()) {
      mark->wait();
    }
    event->context().flush_printf();
    event->context().check_usable();
  });
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsed(pMilliseconds, hStart, hEnd);
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsed(pMilliseconds, hStart, hEnd);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  return entry([&] {
    require(pHandle != nullptr);
    const auto found = registry<Event>().get(event);
    require(found->shared() != nullptr, CUDA_ERROR_INVALID_HANDLE);
    found->shared()->describe(*pHandle);
  });
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  return entry([&] {
    require(phEvent != nullptr);
    const auto context = current_context();
    constexpr unsigned flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    *phEvent =
        registry<Event>().add<CUevent>(std::make_shared<Event>(context, flags, SharedEvent::open(handle)));
  });
}
