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
  /// In a math mode: CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION.
  static constexpr int whole_sums = 16;

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

  /// cublasComputeType_t as the math mode has it: products of singles by tf32, or all of them pedantic.
  [[nodiscard]] int compute_of(int compute, operations::Element multiplied) const {
    constexpr int half = 64, single = 68, wide = 70, integer = 72, by_tf32 = 77;
    constexpr int pedantic_math = 2, tf32_math = 3;
    const int mode = math_mode & 0xf;
    const bool singles = operations::real_of(multiplied) == operations::Element::f32;
    if (mode == tf32_math && compute == single && singles) return by_tf32;
    const bool has_pedantic = compute == half || compute == single || compute == wide || compute == integer;
    return mode == pedantic_math && has_pedantic ? compute + 1 : compute;
  }

  /// How sums that were made in pieces may be added up.
  [[nodiscard]] std::uint8_t reductions() const {
    const bool whole = (math_mode & whole_sums) != 0;
    return whole ? operations::whole_reductions : operations::any_reduction;
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
