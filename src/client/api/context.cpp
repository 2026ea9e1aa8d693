// Contexts. The stack is this process's own; the worker hears of a context when a call is made in it.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/memory/arriving_copies.h"
#include "client/memory/device_memory.h"
#include "client/objects/images.h"
#include "client/progress/completion.h"
#include "client/session/attach_again.h"
#include "generated/client_api.h"
#include "shared_api/context_flags.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuCtxCreate
#undef cuCtxDestroy
#undef cuCtxGetDevice
#undef cuCtxSynchronize

namespace {

Mutex& context_mutex() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}

/// Held by who takes or gives back a reference to a primary context: nobody takes one that is being reset.
Mutex& retaining_mutex() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}

std::atomic<bool> process_ends{false};

/// Without its last reference a primary context is reset. At the end of the process, when runtime libraries
/// give back theirs, what is left goes with the connection: nobody waits for it.
void reset_unreferenced(CUdevice device) {
  if (!runtime().connected() || process_ends.load()) return;
  const NoLeaseWait at_once;
  static_cast<void>(reset_context(primary_context(device), device));
}

/// The primary context's object, made on first use. Its handle never changes.
Context* primary(int device) {
  Context* found = tables().contexts.find(primary_context(device));
  if (found == nullptr) {
    tables().contexts.mint_at(static_cast<std::uint32_t>(device), found);
    found->device = device;
    found->primary = true;
    found->id = static_cast<std::uint64_t>(device) + 1;
  }
  return found;
}

CUresult check_device(CUdevice dev) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const auto count = runtime().devices()->devices.size();
  return dev >= 0 && static_cast<std::size_t>(dev) < std::min<std::size_t>(count, 64)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_DEVICE;
}

Context* current_object() {
  return tables().contexts.find(current_context());
}

CUresult object_of(CUcontext ctx, Context*& out) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  out = ctx == nullptr ? current_object() : tables().contexts.find(raw(ctx));
  if (out != nullptr) return CUDA_SUCCESS;
  return ctx == nullptr && current_context() != 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                  : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult end_context(std::uint64_t handle, int device) {
  messages::DestroyContext m;
  m.context = handle;
  // Where it is, nobody can tell any more once it is retired.
  const std::uint64_t there = runtime().several() ? primary_context(device) : any_context;
  return destroy(tables().contexts, handle, m, there);
}

CUresult create(CUcontext* pctx, unsigned flags, CUdevice dev) {
  if (pctx == nullptr || !are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_device(dev); bad != CUDA_SUCCESS) return bad;
  Context* made = nullptr;
  const std::uint64_t handle = tables().contexts.mint(made);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->device = dev;
  made->flags = flags;
  made->id = handle;
  messages::CreateContext m;
  m.context = handle;
  m.flags = flags;
  m.device = dev;
  replies::CreateContext reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, any_context, bytes, {}, nullptr, &own);
  if (own != CUDA_SUCCESS) {
    tables().contexts.drop(handle);
    return result;
  }
  if (result != CUDA_SUCCESS) {  // of an earlier call: the program does not know of this context
    static_cast<void>(end_context(handle, dev));
    return result;
  }
  context_stack().push_back(handle);
  *pctx = handle_as<CUcontext>(handle);
  return CUDA_SUCCESS;
}

/// Whether nothing else than this device's primary context can have given it work.
bool only_context_of(int device) {
  bool only = true;
  tables().contexts.each(
      [&](std::uint64_t, const Context& c) { only = only && (c.primary || c.device != device); });
  return only;
}

CUresult synchronize(std::uint64_t context) {
  Context* const object = tables().contexts.find(context);
  if (object == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const int device = object->device;
  arriving_copies().context_awaited(context);
  messages::SynchronizeContext m;
  m.context = context;
  replies::SynchronizeContext reply;
  std::vector<std::byte> bytes;
  const std::uint64_t mark = runtime().work_mark();
  CUresult own = CUDA_ERROR_UNKNOWN;
  std::uint64_t place = 0;
  const CUresult result = ask(m, reply, context, bytes, {}, nullptr, &own, &place);
  if (own == CUDA_SUCCESS) note_context_done(context, place);
  if (result == CUDA_SUCCESS && only_context_of(device)) device_memory().settled(device, mark);
  return result;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  runtime().begin_if_over();
  if (const CUresult bad = check_device(dev); bad != CUDA_SUCCESS) return bad;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock retaining(retaining_mutex());
  // Handlers that were registered before the first context run after this one.
  [[maybe_unused]] static const int noted = std::atexit([] { process_ends = true; });
  const MutexLock lock(context_mutex());
  ++primary(dev)->retained;
  *pctx = handle_as<CUcontext>(primary_context(dev));
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  if (const CUresult bad = check_device(dev); bad != CUDA_SUCCESS) return bad;
  const MutexLock retaining(retaining_mutex());
  {
    const MutexLock lock(context_mutex());
    Context* const object = primary(dev);
    if (object->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--object->retained > 0) return CUDA_SUCCESS;
  }
  reset_unreferenced(dev);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  if (const CUresult bad = check_device(dev); bad != CUDA_SUCCESS) return bad;
  if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(context_mutex());
  primary(dev)->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  if (const CUresult bad = check_device(dev); bad != CUDA_SUCCESS) return bad;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(context_mutex());
  *flags = primary(dev)->flags;
  *active = primary(dev)->retained > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

// What lived in the context goes; the context itself stays usable, as a primary context is after a reset.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  if (const CUresult bad = check_device(dev); bad != CUDA_SUCCESS) return bad;
  if (!runtime().connected()) return CUDA_SUCCESS;
  return reset_context(primary_context(dev), dev);
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  runtime().begin_if_over();
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams, unsigned int flags,
                        CUdevice dev) {
  runtime().begin_if_over();
  return paramsArray != nullptr || numParams != 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                  : create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  runtime().begin_if_over();
  if (ctxCreateParams != nullptr &&
      (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  Context* object = nullptr;
  if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult bad = object_of(ctx, object); bad != CUDA_SUCCESS) return bad;
  if (object->primary || object->green) return CUDA_ERROR_INVALID_CONTEXT;
  const std::uint64_t handle = raw(ctx);
  const int device = object->device;
  static_cast<void>(reset_context(handle, device));
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == handle) stack.pop_back();
  return end_context(handle, device);
}

// The usage count of CUDA 3: a context ends when it was detached as often as it was created and attached.
CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(nullptr, object); bad != CUDA_SUCCESS) return bad;
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(context_mutex());
  ++object->attached;
  *pctx = handle_as<CUcontext>(current_context());
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  Context* object = nullptr;
  if (ctx == nullptr || raw(ctx) != current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult bad = object_of(ctx, object); bad != CUDA_SUCCESS) return bad;
  if (object->primary || object->green) return CUDA_ERROR_INVALID_CONTEXT;
  {
    const MutexLock lock(context_mutex());
    if (--object->attached > 0) return CUDA_SUCCESS;
  }
  return api::cuCtxDestroy_v2(ctx);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(nullptr, object); bad != CUDA_SUCCESS) return bad;
  if (pExecAffinity == nullptr || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;  // as cuDeviceGetExecAffinitySupport says
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  runtime().begin_if_over();
  Context* object = nullptr;
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult bad = object_of(ctx, object); bad != CUDA_SUCCESS) return bad;
  context_stack().push_back(raw(ctx));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = handle_as<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  auto& stack = context_stack();
  if (ctx == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  if (tables().contexts.find(raw(ctx)) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty()) {
    stack.push_back(raw(ctx));
  } else {
    stack.back() = raw(ctx);
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = handle_as<CUcontext>(current_context());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  runtime().begin_if_over();
  Context* object = nullptr;
  if (const CUresult bad = object_of(nullptr, object); bad != CUDA_SUCCESS) return bad;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = object->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(ctx, object); bad != CUDA_SUCCESS) return bad;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = object->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(nullptr, object); bad != CUDA_SUCCESS) return bad;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = object->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(nullptr, object); bad != CUDA_SUCCESS) return bad;
  if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  object->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(ctx, object); bad != CUDA_SUCCESS) return bad;
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ctxId = object->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(ctx, object); bad != CUDA_SUCCESS) return bad;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  runtime().begin_if_over();
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  return synchronize(context);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  return ctx == nullptr ? api::cuCtxSynchronize() : synchronize(raw(ctx));
}

// No device of a session reaches another one's memory, as cuDeviceCanAccessPeer says.
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(nullptr, object); bad != CUDA_SUCCESS) return bad;
  if (peerContext == nullptr || raw(peerContext) == current_context() ||
      tables().contexts.find(raw(peerContext)) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}
CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  Context* object = nullptr;
  if (const CUresult bad = object_of(nullptr, object); bad != CUDA_SUCCESS) return bad;
  if (peerContext == nullptr || tables().contexts.find(raw(peerContext)) == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

// The range is a property of the device and stands in its profile once a worker is connected.
CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  CUdevice device = 0;
  if (const CUresult bad = api::cuCtxGetDevice(&device); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = runtime().enter_without_lease(); bad != CUDA_SUCCESS) return bad;
  const auto profile = runtime().devices();
  replies::cuCtxGetStreamPriorityRange range;
  const auto known_device = static_cast<std::size_t>(device) < profile->devices.size();
  if (known_device && profile->devices[static_cast<std::size_t>(device)].stream_priorities) {
    std::tie(range.leastPriority, range.greatestPriority) =
        *profile->devices[static_cast<std::size_t>(device)].stream_priorities;
  } else if (const CUresult bad = ask(messages::cuCtxGetStreamPriorityRange{}, range); bad != CUDA_SUCCESS) {
    return bad;
  }
  if (leastPriority != nullptr) *leastPriority = range.leastPriority;
  if (greatestPriority != nullptr) *greatestPriority = range.greatestPriority;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
