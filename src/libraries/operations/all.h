// The list of operations: the only one.
#pragma once

#include "libraries/operations/convolution.h"
#include "libraries/operations/fft.h"
#include "libraries/operations/gemm.h"
#include "libraries/operations/operation.h"
#include "libraries/operations/pointwise.h"
#include "libraries/operations/reduction.h"

namespace gpupool::operations {

template <Operation... O>
struct All {};

inline constexpr All<Convolution,  //
                     Fft,          //
                     Gemm,         //
                     Pointwise,    //
                     Reduction>
    all_operations{};

}  // namespace gpupool::operations
