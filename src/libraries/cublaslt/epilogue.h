// What is done with a product before it is stored, and what is read or stored beside it.
#pragma once

#include "libraries/cublaslt/descriptors.h"
#include "libraries/operations/gemm.h"

namespace gpupool::cublaslt {

/// Of an operation that has its matrices and sums. `success`, or why there is no such product. The columns of
/// the auxiliary matrix may be 0 apart: programs that only ask for an algorithm, such as XLA, do not say yet
/// how it lies.
int describe_epilogue(const MatmulDesc& product, operations::Gemm& operation);

/// Before it is launched. `success`, or what is wrong with where the sums and the auxiliary matrix lie.
int check_epilogue_places(const operations::Gemm& operation);

}  // namespace gpupool::cublaslt
