#include "worker/driver/event_functions.h"

#include <dlfcn.h>

#include <initializer_list>

namespace gpupool::worker {
namespace {

template <typename Function>
bool look_up(void* library, Function& out, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* symbol = dlsym(library, name)) {
      out = reinterpret_cast<Function>(symbol);
      return true;
    }
  }
  return false;
}

}  // namespace

bool EventFunctions::load(void* library, EventFunctions& out) {
  look_up(library, out.stream_is_capturing, {"cuStreamIsCapturing"});
  look_up(library, out.exchange_capture_mode, {"cuThreadExchangeStreamCaptureMode"});
  look_up(library, out.event_ns, {"gpupool_softgpu_event_ns"});
  return look_up(library, out.context_push, {"cuCtxPushCurrent_v2", "cuCtxPushCurrent"}) &&
         look_up(library, out.context_pop, {"cuCtxPopCurrent_v2", "cuCtxPopCurrent"}) &&
         look_up(library, out.event_create, {"cuEventCreate"}) &&
         look_up(library, out.event_destroy, {"cuEventDestroy_v2", "cuEventDestroy"}) &&
         look_up(library, out.event_record, {"cuEventRecord"}) &&
         look_up(library, out.event_query, {"cuEventQuery"}) &&
         look_up(library, out.event_elapsed, {"cuEventElapsedTime_v2", "cuEventElapsedTime"});
}

}  // namespace gpupool::worker
