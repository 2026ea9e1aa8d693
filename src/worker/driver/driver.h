// The driver that a session is executed against: NVIDIA's libcuda.so.1 or the software GPU, opened by path.
#pragma once

#include <string>

#include "generated/driver_api.h"

namespace gpupool::worker {

/// Owns a driver opened by dlopen. The library stays loaded: drivers do not survive being closed.
class Driver {
 public:
  /// Throws std::runtime_error naming the path and the loader's reason.
  explicit Driver(const std::string& path);

  DriverApi api;
  [[nodiscard]] void* library() const { return library_; }

 private:
  void* library_ = nullptr;
};

}  // namespace gpupool::worker
