// Which products of fp8 there are.
#pragma once

#include "libraries/operations/gemm.h"

namespace gpupool::cublaslt {

/// `success`, or what NVIDIA's library answers on this device to a product of fp8, or to one whose operands
/// have several factors. Addresses of matrices that are not known yet are 0.
int check_narrow_types(const operations::Gemm& operation);

}  // namespace gpupool::cublaslt
