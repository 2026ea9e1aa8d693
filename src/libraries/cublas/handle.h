// What a cublasHandle_t is: state of this process, never a message.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "libraries/cublas/status.h"
#include "libraries/operations/gemm.h"

namespace gpupool::cublas {

enum PointerMode : int { host = 0, device = 1 };

struct Handle {
  static constexpr std::uint32_t mark = 0x63626c73;

  std::uint32_t alive = mark;
  CUstream stream = nullptr;
  int pointer_mode = host;
  int atomics_mode = 0;
  int math_mode = 0;
  int multiprocessors = 0;  // that a call may use; 0: all
  // The program's own: NVIDIA's library uses it, the software GPU needs none.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  // Device memory for a result that goes to host memory (scratch.h).
  static constexpr std::size_t result_bytes = 16;
  std::mutex result_mutex;
  CUdeviceptr result = 0;
  unsigned result_session = 0;

  /// cublasComputeType_t where the math mode allows a faster one: single products by tf32.
  [[nodiscard]] int compute_of(int compute) const {
    constexpr int single = 68, by_tf32 = 77, tf32_math = 3;
    return compute == single && (math_mode & 0xf) == tf32_math ? by_tf32 : compute;
  }
};

/// The handle, or null: then the call answers NOT_INITIALIZED, as for one that was destroyed.
inline Handle* find(void* handle) {
  auto* const found = static_cast<Handle*>(handle);
  return found != nullptr && found->alive == Handle::mark ? found : nullptr;
}

/// A factor as the call was given it: its bytes, or its address where scalars are in device memory.
inline operations::Scalar scalar(const Handle& handle, const void* value, std::size_t bytes) {
  operations::Scalar made;
  if (handle.pointer_mode == device) {
    made.words[0] = reinterpret_cast<std::uintptr_t>(value);
  } else {
    __builtin_memcpy(made.words, value, bytes);
  }
  return made;
}

}  // namespace gpupool::cublas
