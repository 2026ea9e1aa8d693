// The session's contexts and their streams: choosing one, waiting for it, forgetting it.
#include <utility>

#include "worker/session/executor.h"

namespace gpupool::worker {
namespace {

/// More client threads than this share one per-thread stream.
constexpr std::uint32_t max_lanes = 4096;

}  // namespace

void Executor::forgets_context(CUcontext context) {
  in_use.wait_unused(context);
  completions.forget_context(context);
  work.forgets_context(context);
}

void Executor::abandon_context(CUcontext context) {
  forgets_context(context);
  if (staging_) staging_->forget(context);
  if (copy_out_) copy_out_->forget(context);
  std::erase_if(per_thread_streams_, [&](const auto& entry) { return entry.first.first == context; });
  device_of_.erase(context);
  for (const auto kind : {wire::Kind::array, wire::Kind::mipmapped_array, wire::Kind::texture_reference,
                          wire::Kind::texture_object, wire::Kind::surface_object}) {
    handles.forget_owned_by(kind, context);
  }
  arrays.release_context(context);
  limits.release_context(context);
  if (context == current_) select(nullptr);
}

CUresult Executor::select(CUcontext context) {
  const CUresult result = api.cuCtxSetCurrent_(context);
  if (result == CUDA_SUCCESS) {
    current_ = context;
    const auto found = device_of_.find(context);
    const std::int32_t number = found == device_of_.end() ? -1 : ordinal(found->second);
    work.selects(context, number < 0 ? 0 : static_cast<std::size_t>(number));
    handles.owned_by(context);
  }
  return result;
}

CUresult Executor::synchronize_device(CUdevice device) {
  waits();
  CUresult first = CUDA_SUCCESS;
  for (const auto& [context, its_device] : device_of_) {
    if (its_device != device) continue;
    if (context != current_) api.cuCtxSetCurrent_(context);
    const CUresult result = api.cuCtxSynchronize_();
    if (first == CUDA_SUCCESS) first = result;
    if (context != current_) api.cuCtxSetCurrent_(current_);
  }
  return first;
}

std::vector<CUcontext> Executor::contexts() const {
  std::vector<CUcontext> all;
  for (const auto& [context, device] : device_of_) all.push_back(context);
  return all;
}

CUresult Executor::synchronize_all() {
  CUresult first = CUDA_SUCCESS;
  for (const CUdevice device : devices_) {
    const CUresult result = synchronize_device(device);
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

/// An explicit stream has the rules of the per-thread stream: it waits for the legacy stream and is waited
/// for by it. The driver's own would be that of the executing thread, the same for all threads of the client.
CUstream Executor::per_thread_stream() {
  const auto key = std::pair(current_, lane_ < max_lanes ? lane_ : 0);
  const auto found = per_thread_streams_.find(key);
  if (found != per_thread_streams_.end()) return found->second;
  CUstream made = nullptr;
  if (current_ == nullptr || api.cuStreamCreate_(&made, CU_STREAM_DEFAULT) != CUDA_SUCCESS)
    return CU_STREAM_PER_THREAD;
  per_thread_streams_[key] = made;
  return made;
}

}  // namespace gpupool::worker
