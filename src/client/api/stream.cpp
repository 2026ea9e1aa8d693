// Streams, and functions of the host that are called in stream order.
#include <cuda.h>

#include <memory>

#include "client/call/call.h"
#include "client/call/capture.h"
#include "client/call/objects.h"
#include "client/memory/arriving_copies.h"
#include "client/progress/completion.h"
#include "client/progress/host_functions.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuStreamGetCtx

namespace {

/// Handle of a new stream with what can be asked about it later.
std::uint64_t mint(unsigned flags, int priority, std::uint64_t context) {
  static std::atomic<std::uint64_t> next_id{16};
  Stream* made = nullptr;
  const std::uint64_t handle = tables().streams.mint(made);
  if (handle == 0) return 0;
  made->flags = flags;
  made->priority = priority;
  made->context = context;
  made->id = next_id++;
  return handle;
}

/// A stream's description; the special streams describe themselves.
CUresult describe(CUstream stream, Stream& out) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (raw(stream) <= 2) {
    out.context = current_context();
    out.id = raw(stream) == 0 ? 1 : raw(stream);
    return out.context != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
  const Stream* const found = tables().streams.find(raw(stream));
  if (found == nullptr) return bad_handle(wire::Kind::stream);
  out = *found;
  return CUDA_SUCCESS;
}

struct Callback {
  CUstream stream;
  CUstreamCallback function;
  void* data;
};
void run_callback(void* data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  callback->function(callback->stream, CUDA_SUCCESS, callback->data);
}

/// `will_run`: the worker has been told.
CUresult launch_function(CUstream stream, CUhostFn function, void* data, bool& will_run) {
  will_run = false;
  if (!known(wire::Kind::stream, stream)) return bad_handle(wire::Kind::stream);
  bool capturing = false;
  if (const CUresult bad = is_capturing(stream, capturing); bad != CUDA_SUCCESS) return bad;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  WorkerLink& worker = worker_of_stream(stream);
  watch_host_functions(worker);
  messages::LaunchHostFunction m;
  m.token = capturing ? host_function_token(function, data) : host_function_once(function, data);
  m.stream = raw(stream);
  if (!capturing) let_held_up_go_first(worker);
  std::uint64_t place = 0;
  const CUresult result = post(m, context, {}, &place, capturing ? 0 : 1);
  will_run = place != 0;
  if (!will_run && !capturing) forget_host_function(m.token);
  return result;
}

/// Of the special streams it is the current one.
std::uint64_t context_of_stream(CUstream stream, std::uint64_t current) {
  const Stream* const found = tables().streams.find(raw(stream));
  return found == nullptr ? current : found->context;
}

template <class M>
CUresult create(CUstream* out, M& m, unsigned flags, int priority) {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t handle = mint(flags, priority, context);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  m.phStream = handle;
  if (const CUresult bad = post(m, context); bad != CUDA_SUCCESS) {
    tables().streams.drop(handle);
    return bad;
  }
  *out = handle_as<CUstream>(handle);
  return CUDA_SUCCESS;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  runtime().begin_if_over();
  messages::cuStreamCreate m;
  m.Flags = Flags;
  return create(phStream, m, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  runtime().begin_if_over();
  messages::cuStreamCreateWithPriority m;
  m.flags = flags;
  m.priority = priority;
  int least = 0, greatest = 0;
  if (const CUresult bad = api::cuCtxGetStreamPriorityRange(&least, &greatest); bad != CUDA_SUCCESS)
    return bad;
  return create(phStream, m, flags, std::max(greatest, std::min(least, priority)));
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  runtime().begin_if_over();
  const Stream* const stream = tables().streams.find(raw(hStream));
  if (stream == nullptr) return bad_handle(wire::Kind::stream);
  messages::cuStreamDestroy_v2 m;
  m.hStream = raw(hStream);
  const CUresult result = destroy(tables().streams, m.hStream, m, stream->context);
  if (result == CUDA_SUCCESS) forget_capture(hStream);
  return result;
}

CUresult cuStreamSynchronize(CUstream hStream) {
  runtime().begin_if_over();
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  if (known_done(raw(hStream), context)) return found_done(context_of_stream(hStream, context));
  arriving_copies().stream_awaited(raw(hStream), context);
  messages::cuStreamSynchronize m;
  m.hStream = raw(hStream);
  replies::cuStreamSynchronize reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  std::uint64_t place = 0;
  const CUresult result = ask(m, reply, context, bytes, {}, nullptr, &own, &place);
  if (own == CUDA_SUCCESS) note_stream_done(m.hStream, context, place);
  return result;
}

CUresult cuStreamQuery(CUstream hStream) {
  runtime().begin_if_over();
  return query_stream(hStream);
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  Stream stream;
  if (const CUresult bad = describe(hStream, stream); bad != CUDA_SUCCESS) return bad;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = handle_as<CUcontext>(stream.context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return api::cuStreamGetCtx(hStream, pCtx);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  Stream stream;
  if (const CUresult bad = describe(hStream, stream); bad != CUDA_SUCCESS) return bad;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream.flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  Stream stream;
  if (const CUresult bad = describe(hStream, stream); bad != CUDA_SUCCESS) return bad;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream.priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  Stream stream;
  if (const CUresult bad = describe(hStream, stream); bad != CUDA_SUCCESS) return bad;
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *streamId = stream.id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  Stream stream;
  if (const CUresult bad = describe(hStream, stream); bad != CUDA_SUCCESS) return bad;
  return api::cuCtxGetDevice_v2(device, handle_as<CUcontext>(stream.context));
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool will_run = false;
  return launch_function(hStream, fn, userData, will_run);
}

CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void* userData, unsigned int syncMode) {
  if (syncMode > CU_HOST_TASK_SPINWAIT) return CUDA_ERROR_INVALID_VALUE;
  return api::cuLaunchHostFunc(hStream, fn, userData);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  bool capturing = false;
  if (const CUresult bad = is_capturing(hStream, capturing); bad != CUDA_SUCCESS) return bad;
  if (capturing) return api::cuStreamQuery(hStream);  // refused, and the driver ends the capture for it
  std::unique_ptr<Callback> called(new (std::nothrow) Callback{hStream, callback, userData});
  if (called == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  bool will_run = false;
  const CUresult result = launch_function(hStream, &run_callback, called.get(), will_run);
  if (will_run) static_cast<void>(called.release());  // it may have run already, and be gone
  return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  static thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, current);
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
