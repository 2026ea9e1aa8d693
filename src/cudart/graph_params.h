// Descriptions of graph nodes in the driver's terms.
#pragma once

#include "cudart/cuda_api.h"

namespace gpupool::cudart {

cudaError_t driver_kernel_node(const cudaKernelNodeParams& parameters, CUDA_KERNEL_NODE_PARAMS_v2& made);
cudaKernelNodeParams runtime_kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2& parameters);

/// Copies and fills in a graph name the context they run in.
cudaError_t current_context(CUcontext& context);

/// The copy of `count` bytes as a three-dimensional one.
cudaMemcpy3DParms linear_copy(void* dst, const void* src, size_t count, cudaMemcpyKind kind);

/// The tagged union of all kinds of nodes. Give the result back to `take_results`: some kinds write into it.
cudaError_t driver_node(const cudaGraphNodeParams& parameters, CUgraphNodeParams& made);
void take_results(const CUgraphNodeParams& made, cudaGraphNodeParams& parameters);

}  // namespace gpupool::cudart
