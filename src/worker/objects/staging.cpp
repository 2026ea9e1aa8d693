#include "worker/objects/staging.h"

#include <utility>

namespace gpupool::worker {

Staging::Staging(const DriverApi& api) : api_(api) {
  void* memory = nullptr;
  pinned_ = api.cuMemAllocHost_v2_(&memory, 2 * chunk_bytes) == CUDA_SUCCESS;
  if (!pinned_) {
    pageable_.resize(2 * chunk_bytes);
    memory = pageable_.data();
  }
  chunks_ = {static_cast<std::byte*>(memory), static_cast<std::byte*>(memory) + chunk_bytes};
}

Staging::~Staging() {
  while (!events_.empty()) forget(events_.begin()->first);
  if (pinned_) api_.cuMemFreeHost_(chunks_[0]);
}

CUresult Staging::chunk(std::size_t n, std::byte*& out) {
  out = chunks_[n];
  return wait(n);
}

CUresult Staging::used(std::size_t n, CUcontext context, CUstream stream) {
  CUevent& event = events_[context][n];
  constexpr unsigned flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
  if (event == nullptr && api_.cuEventCreate_(&event, flags) != CUDA_SUCCESS) event = nullptr;
  if (event != nullptr && api_.cuEventRecord_(event, stream) == CUDA_SUCCESS) {
    pending_[n] = event;
    return CUDA_SUCCESS;
  }
  return api_.cuStreamSynchronize_(stream);
}

CUresult Staging::wait(std::size_t n) {
  const CUevent event = std::exchange(pending_[n], nullptr);
  return event == nullptr ? CUDA_SUCCESS : api_.cuEventSynchronize_(event);
}

void Staging::forget(CUcontext context) {
  const auto found = events_.find(context);
  if (found == events_.end()) return;
  for (std::size_t n = 0; n < found->second.size(); ++n) {
    const CUevent event = found->second[n];
    if (event == nullptr) continue;
    if (pending_[n] == event) static_cast<void>(wait(n));  // who copied is told by the context
    api_.cuEventDestroy_v2_(event);
  }
  events_.erase(found);
}

}  // namespace gpupool::worker
