// The list of operations: the only one.
#pragma once

#include "libraries/operations/fft.h"
#include "libraries/operations/gemm.h"
#include "libraries/operations/operation.h"

namespace gpupool::operations {

template <Operation... O>
struct All {};

inline constexpr All<Fft, Gemm> all_operations{};

}  // namespace gpupool::operations
