// Device memory that a library works in for one operation, beside what a client has allocated.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "worker/driver/driver.h"

namespace gpupool::worker {

/// Allocated and freed in the order of the stream; so it also serves an operation that is captured.
class Workspace {
 public:
  /// More is not given to an operation: a library then takes another way.
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;

  Workspace(const DriverApi& api, CUstream stream, std::size_t bytes)
      : api_(api), stream_(stream), bytes_(bytes) {
    if (bytes != 0 && api.cuMemAllocAsync_(&address_, bytes, stream) != CUDA_SUCCESS) address_ = 0;
  }
  ~Workspace() {
    if (address_ != 0) static_cast<void>(api_.cuMemFreeAsync_(address_, stream_));
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Whether there was memory.
  [[nodiscard]] bool there() const { return bytes_ == 0 || address_ != 0; }
  [[nodiscard]] void* address() const { return reinterpret_cast<void*>(address_); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  const DriverApi& api_;
  CUstream stream_;
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

}  // namespace gpupool::worker
