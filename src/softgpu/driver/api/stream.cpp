// Streams and what is put into them besides copies and kernels.
#include <algorithm>

#include "base/mutex.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/api/green_context.h"
#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"
#include "softgpu/driver/stream/event.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

constexpr int greatest_priority = -5;

CUresult create_stream(CUstream* handle, unsigned flags, int priority) {
  return entry([&] {
    require(handle != nullptr && (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) == 0);
    const auto context = current_context();
    // Priorities outside the range are moved to its ends, as documented.
    auto stream = context->create_stream(flags, std::clamp(priority, greatest_priority, 0));
    *handle = registry<Stream>().add<CUstream>(std::move(stream));
  });
}

}  // namespace

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return create_stream(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return create_stream(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return entry([&] {
    const auto stream = registry<Stream>().take(hStream);
    stream->context().forget_stream(stream);
  });
}

CUresult cuStreamDestroy(CUstream hStream) {
  return cuStreamDestroy_v2(hStream);
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  return entry([&] {
    require(priority != nullptr);
    *priority = resolve_stream(hStream)->priority();
  });
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  return entry([&] {
    require(flags != nullptr);
    *flags = resolve_stream(hStream)->flags();
  });
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  return entry([&] {
    require(streamId != nullptr);
    *streamId = resolve_stream(hStream)->id();
  });
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return entry([&] {
    require(pctx != nullptr);
    *pctx = reinterpret_cast<CUcontext>(&resolve_stream(hStream)->context());
  });
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  return entry([&] {
    require(pCtx != nullptr);
    *pCtx = reinterpret_cast<CUcontext>(&resolve_stream(hStream)->context());
    if (pGreenCtx)
      *pGreenCtx = reinterpret_cast<CUgreenCtx>(green_context_of(resolve_stream(hStream)->context()).get());
  });
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return entry([&] {
    require(device != nullptr);
    *device = resolve_stream(hStream)->context().device().ordinal();
  });
}

CUresult cuStreamQuery(CUstream hStream) {
  return entry([&]() -> CUresult {
    const auto stream = resolve_stream(hStream);
    refuse_in_capture(*stream);
    if (!stream->idle()) return CUDA_ERROR_NOT_READY;
    stream->context().check_usable();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return entry([&] {
    const auto stream = resolve_stream(hStream);
    refuse_in_capture(*stream);
    stream->synchronize();
    stream->context().flush_printf();
    stream->context().check_usable();
  });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return entry([&] {
    require((Flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) == 0);
    const auto stream = resolve_stream(hStream);
    const auto event = registry<Event>().get(hEvent);
    if (const auto capture = event->captured_in()) {
      // Waiting for captured work makes the stream part of that capture.
      const gpupool::MutexLock order(stream->context().submit_mutex);
      require(!stream->capture || stream->capture == capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
      require(!capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      require(stream->role() != Stream::Role::legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      if (!stream->capture) {
        stream->capture = capture;
        stream->capture_tail.clear();
        if (capture->origin != stream.get()) capture->joined.insert(stream);
      }
      for (GraphNode* node : event->captured_tail()) {
        auto& tail = stream->capture_tail;
        if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
      }
      return;
    }
    if (is_capturing(*stream)) {
      require((Flags & CU_EVENT_WAIT_EXTERNAL) != 0, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
      require(event->shared() == nullptr, CUDA_ERROR_NOT_SUPPORTED);
      issue(stream, {CU_GRAPH_NODE_TYPE_WAIT_EVENT, EventWait{event}, nullptr});
      return;
    }
    // An event that was never recorded is no reason to wait.
    if (const auto& shared = event->shared()) {
      const std::uint64_t number = shared->last();
      if (shared->done(number)) return;
      stream->submit([shared, number, &context = stream->context()] {
        const bool reached = shared->wait(number, [&context] { return context.gives_up(); });
        require(reached, CUDA_ERROR_LAUNCH_TIMEOUT);
      });
    } else if (auto mark = event->mark()) {
      stream->submit(nullptr, {std::move(mark)});
    }
  });
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  return entry([&] {
    require(fn != nullptr);
    issue(resolve_stream(hStream), {CU_GRAPH_NODE_TYPE_HOST, HostCall{fn, userData}, [=] { fn(userData); }});
  });
}

CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void* userData, unsigned int) {
  return cuLaunchHostFunc(hStream, fn, userData);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  return entry([&] {
    require(callback != nullptr && flags == 0);
    const auto stream = resolve_stream(hStream);
    refuse_in_capture(*stream);
    stream->submit([=] { callback(hStream, CUDA_SUCCESS, userData); });
  });
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t, unsigned int) {
  return entry([&] {
    // Managed memory is visible to host and device at any time here: nothing to move.
    resolve_stream(hStream);
    require(AllocationTable::of_process().find(dptr).has_value());
  });
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue* param) {
  return entry([&] {
    require(param != nullptr);
    resolve_stream(hStream)->set_attribute(attr, *param);
  });
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value) {
  return entry([&] {
    require(value != nullptr);
    *value = resolve_stream(hStream)->attribute(attr);
  });
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src) {
  return entry([&] { resolve_stream(dst)->copy_attributes(*resolve_stream(src)); });
}
