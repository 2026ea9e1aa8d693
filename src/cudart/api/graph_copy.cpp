// Copy nodes of graphs: of boxes, of runs of bytes, to and from variables.
#include "cudart/call.h"
#include "cudart/copy_shape.h"
#include "cudart/graph_params.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

/// A description in the driver's terms and the context that the copy runs in.
struct Copy {
  CUDA_MEMCPY3D shape;
  CUcontext context;
};

cudaError_t prepare(const cudaMemcpy3DParms* parameters, Copy& copy) {
  if (parameters == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t bad = current_context(copy.context); bad != cudaSuccess) return bad;
  return driver_shape(*parameters, copy.shape);
}

}  // namespace

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaMemcpy3DParms* pCopyParams) {
  Copy copy;
  if (const cudaError_t bad = prepare(pCopyParams, copy); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &copy.shape,
                                  copy.context);
  });
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* pNodeParams) {
  if (pNodeParams == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D found{};
  const cudaError_t result =
      forward([&](const EntryPoints& d) { return d.cuGraphMemcpyNodeGetParams(node, &found); });
  if (result == cudaSuccess) *pNodeParams = runtime_shape(found);
  return result;
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* pNodeParams) {
  Copy copy;
  if (const cudaError_t bad = prepare(pNodeParams, copy); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuGraphMemcpyNodeSetParams(node, &copy.shape); });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* pNodeParams) {
  Copy copy;
  if (const cudaError_t bad = prepare(pNodeParams, copy); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuGraphExecMemcpyNodeSetParams(hGraphExec, node, &copy.shape, copy.context);
  });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t* pDependencies, size_t numDependencies, void* dst,
                                     const void* src, size_t count, cudaMemcpyKind kind) {
  const cudaMemcpy3DParms copy = linear_copy(dst, src, count, kind);
  return cudart::cudaGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &copy);
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* dst, const void* src, size_t count,
                                           cudaMemcpyKind kind) {
  const cudaMemcpy3DParms copy = linear_copy(dst, src, count, kind);
  return cudart::cudaGraphMemcpyNodeSetParams(node, &copy);
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t hGraphExec, cudaGraphNode_t node, void* dst,
                                               const void* src, size_t count, cudaMemcpyKind kind) {
  const cudaMemcpy3DParms copy = linear_copy(dst, src, count, kind);
  return cudart::cudaGraphExecMemcpyNodeSetParams(hGraphExec, node, &copy);
}

cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                           const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                           const void* symbol, const void* src, size_t count, size_t offset,
                                           cudaMemcpyKind kind) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_fill(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaGraphAddMemcpyNode1D(pGraphNode, graph, pDependencies, numDependencies, address, src,
                                          count, kind);
}

cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                             const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                             void* dst, const void* symbol, size_t count, size_t offset,
                                             cudaMemcpyKind kind) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_read(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaGraphAddMemcpyNode1D(pGraphNode, graph, pDependencies, numDependencies, dst, address,
                                          count, kind);
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol, const void* src,
                                                 size_t count, size_t offset, cudaMemcpyKind kind) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_fill(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaGraphMemcpyNodeSetParams1D(node, address, src, count, kind);
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* dst, const void* symbol,
                                                   size_t count, size_t offset, cudaMemcpyKind kind) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_read(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaGraphMemcpyNodeSetParams1D(node, dst, address, count, kind);
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                                     const void* symbol, const void* src, size_t count,
                                                     size_t offset, cudaMemcpyKind kind) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_fill(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaGraphExecMemcpyNodeSetParams1D(hGraphExec, node, address, src, count, kind);
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                                       void* dst, const void* symbol, size_t count,
                                                       size_t offset, cudaMemcpyKind kind) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_read(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaGraphExecMemcpyNodeSetParams1D(hGraphExec, node, dst, address, count, kind);
}

}  // namespace gpupool::cudart
