// Device memory that a library works in for one operation, beside what a client has allocated.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "worker/driver/driver.h"
#include "worker/libraries/execution.h"

namespace gpupool::worker {

/// Allocated and freed in the order of the stream. A captured operation has memory of its graph's instead: an
/// allocation in the graph would be one that its program knows nothing of, and such a graph can neither be
/// copied nor be instantiated twice.
class Workspace {
 public:
  /// More is not given to an operation: a library then takes another way.
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;
  /// The same for a plan of cuDNN, where the fast engines want much. Without so much memory there is one that
  /// does with less.
  static constexpr std::size_t most_plan_bytes = std::size_t{256} << 20;

  Workspace(const Execution& x, std::size_t bytes);
  ~Workspace();
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
  GraphMemory* of_graph_ = nullptr;  // of a captured operation
};

}  // namespace gpupool::worker
