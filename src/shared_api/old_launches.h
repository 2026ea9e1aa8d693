// The launches of CUDA 3: a function keeps its block, its shared memory and its parameters until it is
// launched.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <vector>

#include "base/mutex.h"

namespace gpupool {

/// Thread-safe. The caller sees to it that a function is one.
class OldLaunches {
 public:
  CUresult set_block(CUfunction function, int x, int y, int z) {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    const MutexLock lock(mutex_);
    kept_[function].block = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
    return CUDA_SUCCESS;
  }

  CUresult set_shared(CUfunction function, unsigned bytes) {
    const MutexLock lock(mutex_);
    kept_[function].shared_bytes = bytes;
    return CUDA_SUCCESS;
  }

  CUresult set_size(CUfunction function, unsigned bytes) {
    if (bytes > most_bytes) return CUDA_ERROR_INVALID_VALUE;
    const MutexLock lock(mutex_);
    kept_[function].parameters.resize(bytes);
    return CUDA_SUCCESS;
  }

  /// Programs set the size before the values, or behind them.
  CUresult set_value(CUfunction function, int offset, const void* value, std::size_t bytes) {
    if (offset < 0 || (value == nullptr && bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
    const auto begin = static_cast<std::size_t>(offset);
    if (begin > most_bytes || bytes > most_bytes - begin) return CUDA_ERROR_INVALID_VALUE;
    const MutexLock lock(mutex_);
    std::vector<std::byte>& all = kept_[function].parameters;
    if (all.size() < begin + bytes) all.resize(begin + bytes);
    if (bytes != 0) std::memcpy(all.data() + begin, value, bytes);
    return CUDA_SUCCESS;
  }

  void forget() {
    const MutexLock lock(mutex_);
    kept_.clear();
  }

  /// Calls `launch` as if it was cuLaunchKernel.
  template <class Launch>
  CUresult launch(CUfunction function, int width, int height, CUstream stream, Launch launch) {
    if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
    Kept kept;
    {
      const MutexLock lock(mutex_);
      if (const auto found = kept_.find(function); found != kept_.end()) kept = found->second;
    }
    std::size_t size = kept.parameters.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kept.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &size, CU_LAUNCH_PARAM_END};
    return launch(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1U, kept.block[0],
                  kept.block[1], kept.block[2], kept.shared_bytes, stream, nullptr,
                  size == 0 ? nullptr : extra);
  }

 private:
  static constexpr std::size_t most_bytes = 32764;  // of a kernel's parameters
  struct Kept {
    std::array<unsigned, 3> block{1, 1, 1};
    unsigned shared_bytes = 0;
    std::vector<std::byte> parameters;
  };
  Mutex mutex_;
  std::map<CUfunction, Kept> kept_ GUARDED_BY(mutex_);
};

}  // namespace gpupool
