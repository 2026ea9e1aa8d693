// Events.
#include <cuda.h>

#include "client/call.h"
#include "client/export.h"

using namespace gpupool;
using namespace gpupool::client;

extern "C" {

GPUPOOL_EXPORT CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  constexpr unsigned known_flags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((Flags & ~known_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  Event* made = nullptr;
  const std::uint64_t handle = tables().events.mint(made);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->flags = Flags;
  made->context = context;
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

GPUPOOL_EXPORT CUresult cuEventDestroy_v2(CUevent hEvent) {
  const Event* const event = tables().events.find(raw(hEvent));
  if (event == nullptr) return bad_handle(wire::Kind::event);
  messages::cuEventDestroy_v2 m;
  m.hEvent = raw(hEvent);
  return destroy(tables().events, m.hEvent, m, event->context);
}

GPUPOOL_EXPORT CUresult cuEventSynchronize(CUevent hEvent) {
  const Event* const event = tables().events.find(raw(hEvent));
  if (event == nullptr) return bad_handle(wire::Kind::event);
  messages::cuEventSynchronize m;
  m.hEvent = raw(hEvent);
  replies::cuEventSynchronize reply;
  std::vector<std::byte> bytes;
  return ask(m, reply, event->context, bytes);
}

}  // extern "C"
