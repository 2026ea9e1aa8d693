#include "worker/staging.h"

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
  if (pinned_) api_.cuMemFreeHost_(chunks_[0]);
}

std::byte* Staging::chunk(std::size_t n) {
  wait(n);
  return chunks_[n];
}

void Staging::used(std::size_t n, CUstream stream) {
  streams_[n] = stream;
  busy_[n] = true;
}

CUresult Staging::wait(std::size_t n) {
  if (!busy_[n]) return CUDA_SUCCESS;
  busy_[n] = false;
  return api_.cuStreamSynchronize_(streams_[n]);
}

}  // namespace gpupool::worker
