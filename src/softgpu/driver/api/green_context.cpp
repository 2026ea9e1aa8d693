// Device resources and green contexts; events over all streams of a context.
#include <algorithm>
#include <functional>
#include <iterator>

#include "base/mutex.h"
#include "softgpu/driver/api/end_context.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/api/green_context.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"
#include "softgpu/driver/stream/event.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace softgpu::driver {

CUdevResource processors_of(const Device& device) {
  CUdevResource resource{};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource.sm.smCount = static_cast<unsigned>(device.limits().multiprocessors);
  resource.sm.minSmPartitionSize = 2;
  resource.sm.smCoscheduledAlignment = 2;
  return resource;
}

std::shared_ptr<GreenContext> green_context_of(const Context& context) {
  const void* found = nullptr;
  registry<GreenContext>().for_each([&](const GreenContext& green) {
    if (green.context.get() == &context) found = &green;
  });
  return found ? registry<GreenContext>().find(found) : nullptr;
}

}  // namespace softgpu::driver

namespace {

std::shared_ptr<GreenContext> green_of(CUgreenCtx handle) {
  return registry<GreenContext>().get(handle, CUDA_ERROR_INVALID_CONTEXT);
}

void show(CUdevResource* out, const CUdevResource& processors, CUdevResourceType type) {
  require(out != nullptr);
  require(type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
  *out = processors;
}

void show_of(CUdevResource* out, const Context& context, CUdevResourceType type) {
  const auto green = green_context_of(context);
  show(out, green ? green->processors : processors_of(context.device()), type);
}

CUdevResource with_count(const CUdevResource& whole, unsigned count) {
  CUdevResource part = whole;
  part.sm.smCount = count;
  if (count == 0) part.type = CU_DEV_RESOURCE_TYPE_INVALID;
  return part;
}

unsigned rounded_up(unsigned count, unsigned to) {
  return (count + to - 1) / to * to;
}

/// A primary context stands for the green ones of its device, too. Throws Error(STREAM_CAPTURE_UNSUPPORTED).
std::vector<std::shared_ptr<Context>> contexts_of(Context& context) {
  std::vector<std::shared_ptr<Context>> found{context.shared_from_this()};
  if (context.primary()) {
    registry<GreenContext>().for_each([&](const GreenContext& green) {
      if (&green.context->device() == &context.device()) found.push_back(green.context);
    });
  }
  for (const auto& each : found) refuse_in_capture(*each);
  return found;
}

/// In a stream of its own: in the legacy one it would hold up what others do after it.
CompletionRef mark_apart(Context& context, std::function<void()> work, std::vector<CompletionRef> after) {
  const auto own = context.create_stream(CU_STREAM_NON_BLOCKING, 0);
  auto mark = own->submit(std::move(work), std::move(after));
  context.forget_stream(own);
  return mark;
}

/// The event is complete when everything given to the context so far is.
void record(Context& context, CUevent handle) {
  const auto event = registry<Event>().get(handle);
  require(&event->context().device() == &context.device(), CUDA_ERROR_INVALID_HANDLE);
  std::vector<CompletionRef> pending;
  for (const auto& each : contexts_of(context))
    std::ranges::copy(each->pending_work(), std::back_inserter(pending));
  std::function<void()> work;
  if (event->shared() != nullptr) work = [recorded = SharedEvent::record(event->shared())] {};
  event->set_mark(mark_apart(context, std::move(work), std::move(pending)));
}

/// Everything given to the context from now on comes after the event.
void wait(Context& context, CUevent handle) {
  const auto event = registry<Event>().get(handle);
  if (const auto capture = event->captured_in()) {
    const gpupool::MutexLock order(event->context().submit_mutex);
    capture->invalidated = true;
    fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  const auto waiting = contexts_of(context);
  auto mark = event->mark();
  if (const auto& shared = event->shared()) {
    const std::uint64_t number = shared->last();
    if (shared->done(number)) return;
    mark = mark_apart(context,
                      [shared, number, &context] {
                        require(shared->wait(number, [&context] { return context.gives_up(); }),
                                CUDA_ERROR_LAUNCH_TIMEOUT);
                      },
                      {});
  }
  if (!mark || mark->done()) return;
  for (const auto& each : waiting) each->come_after(mark);
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  return entry([&] { show(resource, processors_of(Driver::get().device(device)), type); });
}
CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  return entry([&] { show_of(resource, *given_or_current(hCtx), type); });
}
CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource, CUdevResourceType type) {
  return entry([&] { show(resource, green_of(hCtx)->processors, type); });
}
CUresult cuStreamGetDevResource(CUstream hStream, CUdevResource* resource, CUdevResourceType type) {
  return entry([&] { show_of(resource, resolve_stream(hStream)->context(), type); });
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remainder, unsigned int flags,
                                     unsigned int minCount) {
  return entry([&] {
    require(nbGroups && input && input->type == CU_DEV_RESOURCE_TYPE_SM && minCount > 0);
    constexpr unsigned known_flags =
        CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    require((flags & ~known_flags) == 0);
    const unsigned each =
        rounded_up(std::max(minCount, input->sm.minSmPartitionSize), input->sm.smCoscheduledAlignment);
    const unsigned most = input->sm.smCount / each;
    require(most > 0, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    if (!result) {
      *nbGroups = most;
      return;
    }
    require(*nbGroups > 0);
    *nbGroups = std::min(*nbGroups, most);
    for (unsigned n = 0; n < *nbGroups; ++n) result[n] = with_count(*input, each);
    if (remainder) *remainder = with_count(*input, input->sm.smCount - *nbGroups * each);
  });
}

CUresult cuDevSmResourceSplit(CUdevResource* result, unsigned int nbGroups, const CUdevResource* input,
                              CUdevResource* remainder, unsigned int flags,
                              CU_DEV_SM_RESOURCE_GROUP_PARAMS* groupParams) {
  return entry([&] {
    require(input && input->type == CU_DEV_RESOURCE_TYPE_SM && groupParams && nbGroups > 0 && flags == 0);
    unsigned left = input->sm.smCount;
    for (unsigned n = 0; n < nbGroups; ++n) {
      const unsigned count = groupParams[n].smCount;
      const bool any_size = (groupParams[n].flags & CU_DEV_SM_RESOURCE_GROUP_BACKFILL) != 0;
      require(count > 0 && count <= left, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
      require(any_size || count % input->sm.smCoscheduledAlignment == 0,
              CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
      left -= count;
      if (result) result[n] = with_count(*input, count);
    }
    if (remainder) *remainder = with_count(*input, left);
  });
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                   unsigned int nbResources) {
  return entry([&] {
    require(phDesc && resources && nbResources > 0);
    CUdevResource sum = resources[0];
    for (unsigned n = 0; n < nbResources; ++n) {
      require(resources[n].type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
      if (n > 0) sum.sm.smCount += resources[n].sm.smCount;
    }
    require(sum.sm.smCount > 0, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    *phDesc = registry<ResourceDescriptor>().add<CUdevResourceDesc>(
        std::make_shared<ResourceDescriptor>(ResourceDescriptor{sum}));
  });
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  return entry([&] {
    require(phCtx && flags == CU_GREEN_CTX_DEFAULT_STREAM);
    const auto descriptor = registry<ResourceDescriptor>().get(desc);
    Device& device = Driver::get().device(dev);
    require(descriptor->processors.sm.smCount <= static_cast<unsigned>(device.limits().multiprocessors),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    *phCtx = registry<GreenContext>().add<CUgreenCtx>(std::make_shared<GreenContext>(
        GreenContext{Context::create(device, 0, false), descriptor->processors}));
  });
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  return entry([&] {
    const auto green = registry<GreenContext>().take(hCtx, CUDA_ERROR_INVALID_CONTEXT);
    if (peek_context() == green->context) pop_context();
    end_context(*green->context);
  });
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  return entry([&] {
    require(pContext != nullptr);
    *pContext = reinterpret_cast<CUcontext>(green_of(hCtx)->context.get());
  });
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  return entry([&] {
    require(greenCtxId != nullptr);
    *greenCtxId = green_of(greenCtx)->context->id();
  });
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
  return entry([&] {
    require(phStream && flags == CU_STREAM_NON_BLOCKING);
    auto stream = green_of(greenCtx)->context->create_stream(flags, std::clamp(priority, -5, 0));
    *phStream = registry<Stream>().add<CUstream>(std::move(stream));
  });
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return entry([&] {
    require(phCtx != nullptr);
    *phCtx = reinterpret_cast<CUgreenCtx>(green_context_of(resolve_stream(hStream)->context()).get());
  });
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return entry([&] { record(*green_of(hCtx)->context, hEvent); });
}
CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return entry([&] { wait(*green_of(hCtx)->context, hEvent); });
}
CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  return entry([&] { record(*given_or_current(hCtx), hEvent); });
}
CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  return entry([&] { wait(*given_or_current(hCtx), hEvent); });
}
