// A driver for the worker's own tests: enough to open a session, and calls that succeed without doing
// anything. It checks what the worker must never get wrong (a handle that it did not give out) and aborts
// then. Contexts, streams, events, graphs.
#include <cuda.h>

#include <cstring>

#include "worker/test_driver/driver_state.h"

using namespace test_driver;

namespace {
thread_local std::vector<CUcontext> pushed;

/// A question about an event that was last recorded into a capture ends it.
CUresult ask_captured(CUevent event) {
  const auto found = captured_events().find(event);
  if (found == captured_events().end()) return CUDA_SUCCESS;
  if (const auto capture = captures().find(found->second); capture != captures().end())
    capture->second = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return CUDA_ERROR_CAPTURED_EVENT;
}
}  // namespace

EXPORT cuInit(unsigned) {
  const std::unique_lock lock(driver_mutex());
  return CUDA_SUCCESS;
}
EXPORT cuDriverGetVersion(int* v) {
  const std::unique_lock lock(driver_mutex());
  *v = 13000;
  return CUDA_SUCCESS;
}
EXPORT cuDeviceGetCount(int* n) {
  const std::unique_lock lock(driver_mutex());
  *n = test_driver_devices;
  return CUDA_SUCCESS;
}
EXPORT cuDeviceGet(CUdevice* d, int ordinal) {
  const std::unique_lock lock(driver_mutex());
  *d = ordinal;
  return ordinal >= 0 && ordinal < test_driver_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
extern "C" {
__attribute__((visibility("default"))) CUresult test_driver_next_wait = CUDA_SUCCESS;
__attribute__((visibility("default"))) bool test_driver_uses_pinned = false;
__attribute__((visibility("default"))) int test_driver_devices = 1;
/// Those that the last context was made with.
__attribute__((visibility("default"))) unsigned test_driver_context_flags = 0;
/// What the next making of a context ends with.
__attribute__((visibility("default"))) CUresult test_driver_next_context = CUDA_SUCCESS;
}
/// Whether a handle was given out and its object has not ended.
extern "C" __attribute__((visibility("default"))) bool test_driver_knows(const void* handle) {
  const std::unique_lock lock(driver_mutex());
  return handles().count(const_cast<void*>(handle)) != 0;
}
/// From now on explicit streams do not get on, or they do again.
extern "C" __attribute__((visibility("default"))) void test_driver_hold(bool hold) {
  const std::unique_lock lock(driver_mutex());
  held = hold;
  released.notify_all();
}
/// The same of the stream that was made last.
extern "C" __attribute__((visibility("default"))) void test_driver_hold_newest(bool hold) {
  const std::unique_lock lock(driver_mutex());
  held_stream = hold ? newest_stream : nullptr;
  released.notify_all();
}
EXPORT cuDeviceGetName(char* name, int size, CUdevice) {
  const std::unique_lock lock(driver_mutex());
  std::strncpy(name, "test", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
EXPORT cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice d) {
  const std::unique_lock lock(driver_mutex());
  std::memset(uuid, 1 + d, sizeof(*uuid));
  return CUDA_SUCCESS;
}
EXPORT cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  const std::unique_lock lock(driver_mutex());
  *bytes = 1u << 30;
  return CUDA_SUCCESS;
}
EXPORT cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  const std::unique_lock lock(driver_mutex());
  *value = 1;
  return CUDA_SUCCESS;
}
EXPORT cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice d) {
  const std::unique_lock lock(driver_mutex());
  static std::map<CUdevice, void*> all;
  void*& one = all[d];
  if (one == nullptr) one = fresh();
  *c = static_cast<CUcontext>(one);
  return CUDA_SUCCESS;
}
EXPORT cuDevicePrimaryCtxRelease_v2(CUdevice) {
  const std::unique_lock lock(driver_mutex());
  return CUDA_SUCCESS;
}
EXPORT cuCtxCreate_v2(CUcontext* c, unsigned flags, CUdevice) {
  const std::unique_lock lock(driver_mutex());
  test_driver_context_flags = flags;
  if (const CUresult bad = std::exchange(test_driver_next_context, CUDA_SUCCESS); bad != CUDA_SUCCESS)
    return bad;
  return make(c);
}
EXPORT cuCtxDestroy_v2(CUcontext c) {
  const std::unique_lock lock(driver_mutex());
  run_transfers([&](const Transfer& t) { return t.context == c; });
  std::erase_if(pinned(), [&](const auto& block) { return block.second.second == c; });
  if (current == c) current = nullptr;
  return end(c);
}
EXPORT cuCtxGetLimit(size_t* value, CUlimit) {
  *value = 1u << 20;
  return current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
EXPORT cuCtxSetLimit(CUlimit, size_t) {
  return current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
EXPORT cuCtxPushCurrent_v2(CUcontext c) {
  const std::unique_lock lock(driver_mutex());
  if (dead(c)) return CUDA_ERROR_INVALID_CONTEXT;
  pushed.push_back(current);
  current = c;
  return CUDA_SUCCESS;
}
EXPORT cuCtxPopCurrent_v2(CUcontext* c) {
  const std::unique_lock lock(driver_mutex());
  if (pushed.empty()) std::abort();
  *c = current;
  current = pushed.back();
  pushed.pop_back();
  return CUDA_SUCCESS;
}
EXPORT cuCtxSetCurrent(CUcontext c) {
  const std::unique_lock lock(driver_mutex());
  if (c != nullptr) must_know(c);
  current = c;
  return CUDA_SUCCESS;
}
EXPORT cuCtxSynchronize() {
  const std::unique_lock lock(driver_mutex());
  run_transfers([](const Transfer& t) { return t.context == current; });
  return CUDA_SUCCESS;
}
EXPORT cuStreamCreate(CUstream* s, unsigned flags) {
  const std::unique_lock lock(driver_mutex());
  make(s);
  newest_stream = *s;
  if ((flags & CU_STREAM_NON_BLOCKING) == 0) blocking().insert(*s);
  return CUDA_SUCCESS;
}
EXPORT cuStreamDestroy_v2(CUstream s) {
  const std::unique_lock lock(driver_mutex());
  captures().erase(s);
  recorded_graphs().erase(s);
  blocking().erase(s);
  return end(s);
}
EXPORT cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  if (is_special(s) || captures().contains(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  captures()[s] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return make(&recorded_graphs()[s]);
}
EXPORT cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* status) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  if (s == nullptr && legacy_is_caught()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const auto found = captures().find(s);
  *status = found == captures().end() ? CU_STREAM_CAPTURE_STATUS_NONE : found->second;
  return CUDA_SUCCESS;
}
EXPORT cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph* graph,
                                 const CUgraphNode**, const CUgraphEdgeData**, size_t*) {
  const std::unique_lock lock(driver_mutex());
  const auto found = captures().find(s);
  *status = found == captures().end() ? CU_STREAM_CAPTURE_STATUS_NONE : found->second;
  if (found != captures().end()) *graph = recorded_graphs()[s];
  return CUDA_SUCCESS;
}
EXPORT cuStreamEndCapture(CUstream s, CUgraph* graph) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  const auto found = captures().find(s);
  if (found == captures().end()) return CUDA_ERROR_ILLEGAL_STATE;
  const bool good = found->second == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const CUgraph recorded = recorded_graphs()[s];
  std::erase_if(recorded_graphs(), [&](const auto& one) {
    if (one.second != recorded) return false;
    captures().erase(one.first);  // with those that have joined it
    return true;
  });
  if (!good) {
    end(recorded);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = recorded;
  return CUDA_SUCCESS;
}
EXPORT cuGraphDestroy(CUgraph graph) {
  const std::unique_lock lock(driver_mutex());
  return end(graph);
}
EXPORT cuStreamQuery(CUstream s) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  if (s == nullptr) return use_legacy();
  return is_held(s) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
EXPORT cuStreamSynchronize(CUstream s) {
  std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  if (const auto found = captures().find(s); found != captures().end()) {
    found->second = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (const CUresult bad = s == nullptr ? use_legacy() : CUDA_SUCCESS; bad != CUDA_SUCCESS) return bad;
  released.wait(lock, [&] { return !is_held(s); });
  must_know_stream(s);  // nobody may destroy what another thread waits for
  run_transfers([&](const Transfer& t) { return t.context == current && (s == nullptr || t.stream == s); });
  return CUDA_SUCCESS;
}
EXPORT cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  must_know(e);
  if (const auto found = captured_events().find(e); found != captured_events().end()) {
    if (is_special(s) || !captures().contains(found->second)) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    captures()[s] = captures()[found->second];
    recorded_graphs()[s] = recorded_graphs()[found->second];
  }
  return CUDA_SUCCESS;
}
EXPORT cuEventCreate(CUevent* e, unsigned) {
  const std::unique_lock lock(driver_mutex());
  make(e);
  events()[*e] = {current, nullptr};
  return CUDA_SUCCESS;
}
EXPORT cuEventDestroy_v2(CUevent e) {
  const std::unique_lock lock(driver_mutex());
  events().erase(e);
  captured_events().erase(e);
  return end(e);
}
EXPORT cuEventRecord(CUevent e, CUstream s) {
  const std::unique_lock lock(driver_mutex());
  must_know(e);
  must_know_stream(s);
  if (events()[e].first != current) return CUDA_ERROR_INVALID_HANDLE;
  captured_events().erase(e);
  if (captures().contains(s)) {
    captured_events()[e] = s;
  } else {
    events()[e].second = s;
  }
  return CUDA_SUCCESS;
}
EXPORT cuEventRecordWithFlags(CUevent e, CUstream s, unsigned flags) {
  const std::unique_lock lock(driver_mutex());
  must_know(e);
  must_know_stream(s);
  return (flags & CU_EVENT_RECORD_EXTERNAL) != 0 && captures().contains(s) ? CUDA_SUCCESS
                                                                           : cuEventRecord(e, s);
}
EXPORT cuEventQuery(CUevent e) {
  const std::unique_lock lock(driver_mutex());
  must_know(e);
  if (const CUresult bad = ask_captured(e); bad != CUDA_SUCCESS) return bad;
  return is_held(events()[e].second) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
EXPORT cuEventSynchronize(CUevent e) {
  std::unique_lock lock(driver_mutex());
  must_know(e);
  if (const CUresult bad = ask_captured(e); bad != CUDA_SUCCESS) return bad;
  released.wait(lock, [&] { return !is_held(events()[e].second); });
  must_know(e);
  const auto recorded = events()[e];
  const CUcontext context = recorded.first;
  const CUstream stream = recorded.second;
  if (dead(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  run_transfers([&](const Transfer& t) { return t.context == context && t.stream == stream; });
  return std::exchange(test_driver_next_wait, CUDA_SUCCESS);
}
