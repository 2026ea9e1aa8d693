// What a cudnnHandle_t is: state of this process, never a message.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "libraries/cudnn/status.h"
#include "libraries/shared/launch.h"

namespace gpupool::cudnn {

struct Handle {
  static constexpr std::uint32_t mark = 0x63646e6e;

  std::uint32_t alive = mark;
  CUstream stream = nullptr;
};

/// The handle, or null: none, or one that was destroyed.
inline Handle* find_handle(void* handle) {
  auto* const found = static_cast<Handle*>(handle);
  return found != nullptr && found->alive == Handle::mark ? found : nullptr;
}

/// What this thread's last refusal said (cudnnGetLastErrorString).
inline std::string& last_error() {
  thread_local std::string text;
  return text;
}

/// Posts an operation to the handle's stream.
template <operations::Operation O>
int post(const Handle& handle, const O& operation) {
  return status_of(libraries::launch(operation, handle.stream));
}

}  // namespace gpupool::cudnn
