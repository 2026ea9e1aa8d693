// What handles and settings of cuSOLVER are: state of this process, never a message.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "libraries/cusolver/status.h"

namespace gpupool::cusolver {

/// cusolverDnHandle_t.
struct Handle {
  static constexpr std::uint32_t mark = 0x63736c76;
  std::uint32_t alive = mark;
  CUstream stream = nullptr;
  int deterministic_mode = 1;  // cusolverDeterministicMode_t: results are the same every time
  int math_mode = 1;           // cusolverMathMode_t: the default
};

/// syevjInfo_t and gesvdjInfo_t: how Jacobi's method would go on. Values are found in another way, exactly.
struct Jacobi {
  static constexpr std::uint32_t mark = 0x6a636269;
  std::uint32_t alive = mark;
  int max_sweeps = 100;
  int sorted = 1;
  double tolerance = 0;
};

/// cusolverDnParams_t: which algorithm is used for what. There is one here.
struct Params {
  static constexpr std::uint32_t mark = 0x70726d73;
  static constexpr int functions = 3;
  std::uint32_t alive = mark;
  int algorithms[functions] = {};
};

/// The object, or null: none, or one that was destroyed.
template <class T>
T* find(void* object) {
  auto* const found = static_cast<T*>(object);
  return found != nullptr && found->alive == T::mark ? found : nullptr;
}

}  // namespace gpupool::cusolver
