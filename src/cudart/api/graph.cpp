// Graph nodes whose descriptions differ between runtime and driver.
#include "cudart/call.h"
#include "cudart/graph_params.h"
#include "generated_custom.h"

namespace gpupool::cudart {

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaKernelNodeParams* pNodeParams) {
  if (pNodeParams == nullptr) return cudaErrorInvalidValue;
  CUDA_KERNEL_NODE_PARAMS_v2 made;
  if (const cudaError_t bad = driver_kernel_node(*pNodeParams, made); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuGraphAddKernelNode_v2(pGraphNode, graph, pDependencies, numDependencies, &made);
  });
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* pNodeParams) {
  if (pNodeParams == nullptr) return cudaErrorInvalidValue;
  CUDA_KERNEL_NODE_PARAMS_v2 found{};
  const cudaError_t result =
      forward([&](const EntryPoints& d) { return d.cuGraphKernelNodeGetParams_v2(node, &found); });
  if (result == cudaSuccess) *pNodeParams = runtime_kernel_node(found);
  return result;
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* pNodeParams) {
  if (pNodeParams == nullptr) return cudaErrorInvalidValue;
  CUDA_KERNEL_NODE_PARAMS_v2 made;
  if (const cudaError_t bad = driver_kernel_node(*pNodeParams, made); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuGraphKernelNodeSetParams_v2(node, &made); });
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* pNodeParams) {
  if (pNodeParams == nullptr) return cudaErrorInvalidValue;
  CUDA_KERNEL_NODE_PARAMS_v2 made;
  if (const cudaError_t bad = driver_kernel_node(*pNodeParams, made); bad != cudaSuccess) return bad;
  return forward(
      [&](const EntryPoints& d) { return d.cuGraphExecKernelNodeSetParams_v2(hGraphExec, node, &made); });
}

namespace {

CUDA_MEMSET_NODE_PARAMS driver_fill(const cudaMemsetParams& p) {
  static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS_v1) == sizeof(cudaMemsetParams));
  return std::bit_cast<CUDA_MEMSET_NODE_PARAMS>(p);
}

}  // namespace

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaMemsetParams* pMemsetParams) {
  if (pMemsetParams == nullptr) return cudaErrorInvalidValue;
  const CUDA_MEMSET_NODE_PARAMS made = driver_fill(*pMemsetParams);
  CUcontext context = nullptr;
  if (const cudaError_t bad = current_context(context); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuGraphAddMemsetNode(pGraphNode, graph, pDependencies, numDependencies, &made, context);
  });
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const cudaMemsetParams* pNodeParams) {
  if (pNodeParams == nullptr) return cudaErrorInvalidValue;
  const CUDA_MEMSET_NODE_PARAMS made = driver_fill(*pNodeParams);
  CUcontext context = nullptr;
  if (const cudaError_t bad = current_context(context); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuGraphExecMemsetNodeSetParams(hGraphExec, node, &made, context);
  });
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                     cudaMemAllocNodeParams* nodeParams) {
  if (nodeParams == nullptr) return cudaErrorInvalidValue;
  static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == sizeof(cudaMemAllocNodeParams));
  return forward([&](const EntryPoints& d) {
    return d.cuGraphAddMemAllocNode(pGraphNode, graph, pDependencies, numDependencies,
                                    reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(nodeParams));
  });
}

namespace {

/// The description goes to the driver in its terms, and what the driver writes comes back.
template <class Call>
cudaError_t with_node(cudaGraphNodeParams* parameters, Call&& call) {
  if (parameters == nullptr) return cudaErrorInvalidValue;
  CUgraphNodeParams made;
  if (const cudaError_t bad = driver_node(*parameters, made); bad != cudaSuccess) return bad;
  const cudaError_t result = forward([&](const EntryPoints& d) { return call(d, &made); });
  if (result == cudaSuccess) take_results(made, *parameters);
  return result;
}

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     const cudaGraphEdgeData* edges, size_t count, cudaGraphNodeParams* parameters) {
  return with_node(parameters, [&](const EntryPoints& d, CUgraphNodeParams* made) {
    return d.cuGraphAddNode_v2(node, graph, dependencies, reinterpret_cast<const CUgraphEdgeData*>(edges),
                               count, made);
  });
}

}  // namespace

#if CUDART_VERSION < 13000
cudaError_t cudaGraphAddNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                             const cudaGraphNode_t* pDependencies, size_t numDependencies,
                             cudaGraphNodeParams* nodeParams) {
  return add_node(pGraphNode, graph, pDependencies, nullptr, numDependencies, nodeParams);
}

cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                const cudaGraphNode_t* pDependencies, const cudaGraphEdgeData* dependencyData,
                                size_t numDependencies, cudaGraphNodeParams* nodeParams) {
  return add_node(pGraphNode, graph, pDependencies, dependencyData, numDependencies, nodeParams);
}
#else
cudaError_t cudaGraphAddNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                             const cudaGraphNode_t* pDependencies, const cudaGraphEdgeData* dependencyData,
                             size_t numDependencies, cudaGraphNodeParams* nodeParams) {
  return add_node(pGraphNode, graph, pDependencies, dependencyData, numDependencies, nodeParams);
}
#endif

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* nodeParams) {
  return with_node(nodeParams, [&](const EntryPoints& d, CUgraphNodeParams* made) {
    return d.cuGraphNodeSetParams(node, made);
  });
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t graphExec, cudaGraphNode_t node,
                                       cudaGraphNodeParams* nodeParams) {
  return with_node(nodeParams, [&](const EntryPoints& d, CUgraphNodeParams* made) {
    return d.cuGraphExecNodeSetParams(graphExec, node, made);
  });
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* pHandle_out, cudaGraph_t graph,
                                             unsigned int defaultLaunchValue, unsigned int flags) {
  CUcontext context = nullptr;
  if (const cudaError_t bad = current_context(context); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuGraphConditionalHandleCreate(as<CUgraphConditionalHandle*>(pHandle_out), graph, context,
                                            defaultLaunchValue, flags);
  });
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* instantiateParams,
                                           CUstream default_stream) {
  if (instantiateParams == nullptr) return cudaErrorInvalidValue;
  static_assert(sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == sizeof(cudaGraphInstantiateParams));
  auto made = std::bit_cast<CUDA_GRAPH_INSTANTIATE_PARAMS>(*instantiateParams);
  const bool uploads = (made.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  if (uploads && made.hUploadStream == nullptr) made.hUploadStream = default_stream;
  const cudaError_t result =
      forward([&](const EntryPoints& d) { return d.cuGraphInstantiateWithParams(pGraphExec, graph, &made); });
  instantiateParams->errNode_out = made.hErrNode_out;
  instantiateParams->result_out = static_cast<cudaGraphInstantiateResult>(made.result_out);
  return result;
}

}  // namespace gpupool::cudart
