// Contexts: primary and created, the per-thread stack, limits, peers.
#include "softgpu/driver/stream/context.h"
#include "base/mutex.h"
#include "shared_api/context_flags.h"
#include "softgpu/driver/api/end_context.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/api/green_context.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/driver/stream/current_context.h"

using namespace softgpu::driver;

namespace {

CUcontext handle_of(const std::shared_ptr<Context>& context) {
  return reinterpret_cast<CUcontext>(context.get());
}

std::shared_ptr<Context> context_of(CUcontext handle) {
  return registry<Context>().get(handle, CUDA_ERROR_INVALID_CONTEXT);
}

CUresult create_context(CUcontext* handle, unsigned flags, CUdevice ordinal) {
  return entry([&] {
    require(handle != nullptr);
    require(gpupool::are_context_flags(flags));
    auto context = Context::create(Driver::get().device(ordinal), flags, false);
    *handle = handle_of(context);
    push_context(std::move(context));
  });
}

// Ends the primary context. Its users stay users until they release it.
void end_primary(Device& device) REQUIRES(device.primary_mutex);
void end_primary(Device& device) {
  const auto context = std::move(device.primary);
  device.primary.reset();
  if (context) end_context(*context);
}

void synchronize(Context& context) {
  refuse_in_capture(context);
  context.synchronize();
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return entry([&] {
    require(pctx != nullptr);
    Device& device = Driver::get().device(dev);
    const gpupool::MutexLock lock(device.primary_mutex);
    if (!device.primary) device.primary = Context::create(device, device.primary_flags, true);
    ++device.primary_users;
    *pctx = handle_of(device.primary);
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return entry([&] {
    Device& device = Driver::get().device(dev);
    const gpupool::MutexLock lock(device.primary_mutex);
    require(device.primary_users > 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--device.primary_users == 0) end_primary(device);
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return entry([&] {
    Device& device = Driver::get().device(dev);
    const gpupool::MutexLock lock(device.primary_mutex);
    end_primary(device);
  });
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return entry([&] {
    require(gpupool::are_context_flags(flags));
    Device& device = Driver::get().device(dev);
    const gpupool::MutexLock lock(device.primary_mutex);
    device.primary_flags = flags;
    if (device.primary) device.primary->flags = flags;
  });
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  return entry([&] {
    require(flags && active);
    Device& device = Driver::get().device(dev);
    const gpupool::MutexLock lock(device.primary_mutex);
    *flags = device.primary_flags;
    *active = device.primary != nullptr;
  });
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create_context(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags,
                        CUdevice dev) {
  if (numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create_context(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags, CUdevice dev) {
  if (params && params->numExecAffinityParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (params && params->cigParams) return CUDA_ERROR_NOT_SUPPORTED;
  return create_context(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return entry([&] {
    const auto context = context_of(ctx);
    require(!context->primary() && !green_context_of(*context), CUDA_ERROR_INVALID_CONTEXT);
    if (peek_context() == context) pop_context();
    end_context(*context);
  });
}

CUresult cuCtxDestroy(CUcontext ctx) {
  return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return entry([&] { push_context(context_of(ctx)); });
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
  return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  return entry([&] {
    const auto context = pop_context();
    if (pctx) *pctx = handle_of(context);
  });
}

CUresult cuCtxPopCurrent(CUcontext* pctx) {
  return cuCtxPopCurrent_v2(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  return entry([&] { set_context(ctx ? context_of(ctx) : nullptr); });
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  return entry([&] {
    require(pctx != nullptr);
    *pctx = handle_of(peek_context());
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return entry([&] {
    require(device != nullptr);
    const auto context = peek_context();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    *device = context->device().ordinal();
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  return entry([&] {
    require(device != nullptr);
    *device = given_or_current(ctx)->device().ordinal();
  });
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  return entry([&] {
    require(ctxId != nullptr);
    *ctxId = given_or_current(ctx)->id();
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return entry([&] {
    require(flags != nullptr);
    *flags = current_context()->flags;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return entry([&] {
    require(gpupool::are_context_flags(flags));
    current_context()->flags = flags;
  });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  return entry([&] {
    require(version != nullptr);
    given_or_current(ctx);
    *version = 3020;  // the version every context of a current driver reports
  });
}

CUresult cuCtxSynchronize(void) {
  return entry([&] { synchronize(*current_context()); });
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  return entry([&] { synchronize(*given_or_current(ctx)); });
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  return entry([&] {
    require(pvalue != nullptr);
    *pvalue = current_context()->limit(limit);
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return entry([&] { current_context()->set_limit(limit, value); });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  return entry([&] {
    require(pconfig != nullptr);
    *pconfig = current_context()->cache_config;
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  return entry([&] { current_context()->cache_config = config; });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  return entry([&] {
    require(pConfig != nullptr);
    *pConfig = current_context()->shared_config;
  });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return entry([&] { current_context()->shared_config = config; });
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return entry([&] {
    current_context();
    if (leastPriority) *leastPriority = 0;
    if (greatestPriority) *greatestPriority = -5;
  });
}

CUresult cuCtxResetPersistingL2Cache(void) {
  return entry([&] { current_context(); });
}

// Peers: software devices share one address space, so access is always there; only the calls' own rules are
// kept.
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return entry([&] {
    require(Flags == 0);
    const auto context = current_context();
    const auto peer = context_of(peerContext);
    require(peer != context, CUDA_ERROR_INVALID_CONTEXT);
    require(&peer->device() != &context->device(), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  return entry([&] {
    current_context();
    context_of(peerContext);
  });
}
