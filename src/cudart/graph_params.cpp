#include "cudart/graph_params.h"

#include <cstring>

#include "cudart/call.h"
#include "cudart/copy_shape.h"
#include "cudart/registry.h"

namespace gpupool::cudart {

cudaError_t driver_kernel_node(const cudaKernelNodeParams& p, CUDA_KERNEL_NODE_PARAMS_v2& made) {
  made = {};
  // `func` stays empty: the kernel's handle is enough, whatever context it runs in.
  if (const cudaError_t bad = kernel_handle(p.func, made.kern); bad != cudaSuccess) return bad;
  made.gridDimX = p.gridDim.x;
  made.gridDimY = p.gridDim.y;
  made.gridDimZ = p.gridDim.z;
  made.blockDimX = p.blockDim.x;
  made.blockDimY = p.blockDim.y;
  made.blockDimZ = p.blockDim.z;
  made.sharedMemBytes = p.sharedMemBytes;
  made.kernelParams = p.kernelParams;
  made.extra = p.extra;
  return cudaSuccess;
}

cudaKernelNodeParams runtime_kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2& p) {
  cudaKernelNodeParams made{};
  const Kernel* const registered = find_kernel(p.kern);
  made.func = registered != nullptr ? const_cast<void*>(registered->host)
              : p.kern != nullptr   ? static_cast<void*>(p.kern)
                                    : static_cast<void*>(p.func);
  made.gridDim = dim3{p.gridDimX, p.gridDimY, p.gridDimZ};
  made.blockDim = dim3{p.blockDimX, p.blockDimY, p.blockDimZ};
  made.sharedMemBytes = p.sharedMemBytes;
  made.kernelParams = p.kernelParams;
  made.extra = p.extra;
  return made;
}

cudaError_t current_context(CUcontext& context) {
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  return translate(driver().cuCtxGetCurrent(&context));
}

cudaMemcpy3DParms linear_copy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  cudaMemcpy3DParms made{};
  made.srcPtr = {const_cast<void*>(src), count, count, 1};
  made.dstPtr = {dst, count, count, 1};
  made.extent = {count, 1, 1};
  made.kind = kind;
  return made;
}

cudaError_t driver_node(const cudaGraphNodeParams& p, CUgraphNodeParams& made) {
  static_assert(sizeof(CUgraphNodeParams) == sizeof(cudaGraphNodeParams));
  // Most kinds are the same structure under two names.
  made = std::bit_cast<CUgraphNodeParams>(p);
  switch (p.type) {
    case cudaGraphNodeTypeKernel: {
      cudaKernelNodeParams kernel{};
      kernel.func = p.kernel.func;
      kernel.gridDim = dim3{p.kernel.gridDim.x, p.kernel.gridDim.y, p.kernel.gridDim.z};
      kernel.blockDim = dim3{p.kernel.blockDim.x, p.kernel.blockDim.y, p.kernel.blockDim.z};
      kernel.sharedMemBytes = p.kernel.sharedMemBytes;
      kernel.kernelParams = p.kernel.kernelParams;
      kernel.extra = p.kernel.extra;
      CUDA_KERNEL_NODE_PARAMS_v2 plain;
      if (const cudaError_t bad = driver_kernel_node(kernel, plain); bad != cudaSuccess) return bad;
      static_assert(sizeof(plain) == sizeof(made.kernel));
      std::memset(made.reserved1, 0, sizeof(made.reserved1));
      std::memcpy(&made.kernel, &plain, sizeof(plain));
      return cudaSuccess;
    }
    case cudaGraphNodeTypeMemcpy: {
      CUDA_MEMCPY3D shape;
      if (const cudaError_t bad = driver_shape(p.memcpy.copyParams, shape); bad != cudaSuccess) return bad;
      std::memset(made.reserved1, 0, sizeof(made.reserved1));
      made.memcpy.flags = p.memcpy.flags;
      made.memcpy.copyParams = shape;
      return current_context(made.memcpy.copyCtx);
    }
    case cudaGraphNodeTypeMemset:
      return current_context(made.memset.ctx);
    case cudaGraphNodeTypeConditional:
      return current_context(made.conditional.ctx);
    default:
      return cudaSuccess;
  }
}

void take_results(const CUgraphNodeParams& made, cudaGraphNodeParams& p) {
  if (p.type == cudaGraphNodeTypeMemAlloc) p.alloc.dptr = as<void*>(made.alloc.dptr);
  if (p.type == cudaGraphNodeTypeConditional) p.conditional.phGraph_out = made.conditional.phGraph_out;
}

}  // namespace gpupool::cudart
