// The functions of the graph API that are made for one type of node, over the four that take any type.
//
// Included once by each library that has them, after `GRAPH_EXPORT` (what stands before each function) and
// `GRAPH_FUNCTIONS` (what surrounds them all) are defined.
#pragma once

#include <cuda.h>

#include <cstring>
#include <type_traits>

// cuda.h maps plain names to their newest form; here every name means itself.
#undef cuGraphAddKernelNode
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphAddNode

namespace graph_api {

/// May fill in what the caller is given back: an address, the bodies of a conditional.
CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                  const CUgraphEdgeData* data, size_t count, CUgraphNodeParams& params);
CUresult set_node(CUgraphNode node, CUgraphNodeParams& params);
CUresult set_exec_node(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams& params);
/// What pointers in `params` lead to belongs to the node.
CUresult get_node(CUgraphNode node, CUgraphNodeParams& params);

inline CUgraphNodeParams of_type(CUgraphNodeType type) {
  CUgraphNodeParams params;
  std::memset(&params, 0, sizeof(params));
  params.type = type;
  return params;
}

/// The versions of one description begin alike: the shorter one is a prefix of the longer.
template <class Whole, class Part>
void copy_prefix(Whole& to, const Part& from) {
  static_assert(std::is_trivially_copyable_v<Whole> && std::is_trivially_copyable_v<Part>);
  std::memcpy(&to, &from, sizeof(to) < sizeof(from) ? sizeof(to) : sizeof(from));
}

inline CUgraphNodeParams kernel(const CUDA_KERNEL_NODE_PARAMS_v1& given) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  copy_prefix(params.kernel, given);
  return params;
}
inline CUgraphNodeParams kernel(const CUDA_KERNEL_NODE_PARAMS_v2& given) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  copy_prefix(params.kernel, given);
  return params;
}
inline CUgraphNodeParams copy(const CUDA_MEMCPY3D& given, CUcontext context) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  params.memcpy.copyCtx = context;
  params.memcpy.copyParams = given;
  return params;
}
inline CUgraphNodeParams fill(const CUDA_MEMSET_NODE_PARAMS_v1& given, CUcontext context) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
  params.memset.dst = given.dst;
  params.memset.pitch = given.pitch;
  params.memset.value = given.value;
  params.memset.elementSize = given.elementSize;
  params.memset.width = given.width;
  params.memset.height = given.height;
  params.memset.ctx = context;
  return params;
}
inline CUgraphNodeParams host(const CUDA_HOST_NODE_PARAMS_v1& given) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_HOST);
  params.host.fn = given.fn;
  params.host.userData = given.userData;
  return params;
}
inline CUgraphNodeParams child(CUgraph graph) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph.graph = graph;
  return params;
}
inline CUgraphNodeParams record(CUevent event) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  params.eventRecord.event = event;
  return params;
}
inline CUgraphNodeParams wait(CUevent event) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  params.eventWait.event = event;
  return params;
}
inline CUgraphNodeParams batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& given) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  params.memOp.ctx = given.ctx;
  params.memOp.count = given.count;
  params.memOp.paramArray = given.paramArray;
  params.memOp.flags = given.flags;
  return params;
}

/// The parameters of a node that must be of this type.
inline CUresult get(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams& params) {
  if (const CUresult bad = get_node(node, params); bad != CUDA_SUCCESS) return bad;
  return params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <class Given, class Make, class Use>
CUresult with(const Given* given, Make make, Use use) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params = make(*given);
  return use(params);
}

template <class Out, class Copy>
CUresult give(CUgraphNode node, CUgraphNodeType type, Out* out, Copy copy) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params;
  if (const CUresult bad = get(node, type, params); bad != CUDA_SUCCESS) return bad;
  copy(params);
  return CUDA_SUCCESS;
}

}  // namespace graph_api

GRAPH_FUNCTIONS {
  CUresult cuGraphAddKernelNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                const CUDA_KERNEL_NODE_PARAMS_v1*);
  CUresult cuGraphKernelNodeGetParams(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v1*);
  CUresult cuGraphKernelNodeSetParams(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*);
  CUresult cuGraphExecKernelNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*);
  CUresult cuGraphAddNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraphNodeParams*);

  // The general forms.
  GRAPH_EXPORT CUresult cuGraphAddNode(CUgraphNode * phGraphNode, CUgraph hGraph,
                                       const CUgraphNode* dependencies, size_t numDependencies,
                                       CUgraphNodeParams* nodeParams) {
    if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, *nodeParams);
  }
  GRAPH_EXPORT CUresult cuGraphAddNode_v2(
      CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
      const CUgraphEdgeData* dependencyData, size_t numDependencies, CUgraphNodeParams* nodeParams) {
    if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return graph_api::add_node(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                               *nodeParams);
  }
  GRAPH_EXPORT CUresult cuGraphAddNode_v3(
      CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
      const CUgraphEdgeData* dependencyData, size_t numDependencies, CUgraphNodeParams* nodeParams) {
    // In parentheses: the namesake of this scope, not one that an argument's type brings along.
    return (cuGraphAddNode_v2)(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                               nodeParams);
  }
  GRAPH_EXPORT CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams * nodeParams) {
    return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : graph_api::set_node(hNode, *nodeParams);
  }
  GRAPH_EXPORT CUresult cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams * nodeParams) {
    return (cuGraphNodeSetParams)(hNode, nodeParams);
  }
  GRAPH_EXPORT CUresult cuGraphNodeGetParams(CUgraphNode hNode, CUgraphNodeParams * nodeParams) {
    return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : graph_api::get_node(hNode, *nodeParams);
  }
  GRAPH_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 CUgraphNodeParams * nodeParams) {
    return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE
                                 : graph_api::set_exec_node(hGraphExec, hNode, *nodeParams);
  }

  GRAPH_EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode * phGraphNode, CUgraph hGraph,
                                            const CUgraphNode* dependencies, size_t numDependencies) {
    CUgraphNodeParams params = graph_api::of_type(CU_GRAPH_NODE_TYPE_EMPTY);
    return graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params);
  }

#define GRAPH_TYPED_ADD(NAME, GIVEN, MAKE)                                                                 \
  GRAPH_EXPORT CUresult NAME(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,    \
                             size_t numDependencies, const GIVEN* nodeParams) {                            \
    return graph_api::with(                                                                                \
        nodeParams, [](const GIVEN& given) { return graph_api::MAKE(given); },                             \
        [&](CUgraphNodeParams& params) {                                                                   \
          return graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params); \
        });                                                                                                \
  }
#define GRAPH_TYPED_ADD_IN(NAME, GIVEN, MAKE)                                                              \
  GRAPH_EXPORT CUresult NAME(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,    \
                             size_t numDependencies, const GIVEN* nodeParams, CUcontext ctx) {             \
    return graph_api::with(                                                                                \
        nodeParams, [&](const GIVEN& given) { return graph_api::MAKE(given, ctx); },                       \
        [&](CUgraphNodeParams& params) {                                                                   \
          return graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params); \
        });                                                                                                \
  }
#define GRAPH_TYPED_SET(NAME, GIVEN, MAKE)                                              \
  GRAPH_EXPORT CUresult NAME(CUgraphNode hNode, const GIVEN* nodeParams) {              \
    return graph_api::with(                                                             \
        nodeParams, [](const GIVEN& given) { return graph_api::MAKE; },                 \
        [&](CUgraphNodeParams& params) { return graph_api::set_node(hNode, params); }); \
  }
#define GRAPH_TYPED_EXEC_SET(NAME, GIVEN, MAKE)                                                          \
  GRAPH_EXPORT CUresult NAME(CUgraphExec hGraphExec, CUgraphNode hNode, const GIVEN* nodeParams) {       \
    return graph_api::with(                                                                              \
        nodeParams, [](const GIVEN& given) { return graph_api::MAKE(given); },                           \
        [&](CUgraphNodeParams& params) { return graph_api::set_exec_node(hGraphExec, hNode, params); }); \
  }
#define GRAPH_TYPED_EXEC_SET_IN(NAME, GIVEN, MAKE)                                                       \
  GRAPH_EXPORT CUresult NAME(CUgraphExec hGraphExec, CUgraphNode hNode, const GIVEN* nodeParams,         \
                             CUcontext ctx) {                                                            \
    return graph_api::with(                                                                              \
        nodeParams, [&](const GIVEN& given) { return graph_api::MAKE(given, ctx); },                     \
        [&](CUgraphNodeParams& params) { return graph_api::set_exec_node(hGraphExec, hNode, params); }); \
  }

  GRAPH_TYPED_ADD(cuGraphAddKernelNode, CUDA_KERNEL_NODE_PARAMS_v1, kernel)
  GRAPH_TYPED_ADD(cuGraphAddKernelNode_v2, CUDA_KERNEL_NODE_PARAMS_v2, kernel)
  GRAPH_TYPED_SET(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, kernel(given))
  GRAPH_TYPED_SET(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS_v2, kernel(given))
  GRAPH_TYPED_EXEC_SET(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, kernel)
  GRAPH_TYPED_EXEC_SET(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS_v2, kernel)
  GRAPH_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode,
                                                   CUDA_KERNEL_NODE_PARAMS_v1 * nodeParams) {
    return graph_api::give(
        hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
        [&](const CUgraphNodeParams& params) { graph_api::copy_prefix(*nodeParams, params.kernel); });
  }
  GRAPH_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                                      CUDA_KERNEL_NODE_PARAMS_v2 * nodeParams) {
    return graph_api::give(
        hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
        [&](const CUgraphNodeParams& params) { graph_api::copy_prefix(*nodeParams, params.kernel); });
  }

  GRAPH_TYPED_ADD_IN(cuGraphAddMemcpyNode, CUDA_MEMCPY3D, copy)
  GRAPH_TYPED_SET(cuGraphMemcpyNodeSetParams, CUDA_MEMCPY3D, copy(given, nullptr))
  GRAPH_TYPED_EXEC_SET_IN(cuGraphExecMemcpyNodeSetParams, CUDA_MEMCPY3D, copy)
  GRAPH_EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D * nodeParams) {
    return graph_api::give(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams,
                           [&](const CUgraphNodeParams& params) { *nodeParams = params.memcpy.copyParams; });
  }

  GRAPH_TYPED_ADD_IN(cuGraphAddMemsetNode, CUDA_MEMSET_NODE_PARAMS, fill)
  GRAPH_TYPED_SET(cuGraphMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS, fill(given, nullptr))
  GRAPH_TYPED_EXEC_SET_IN(cuGraphExecMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS, fill)
  GRAPH_EXPORT CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS * nodeParams) {
    return graph_api::give(
        hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams,
        [&](const CUgraphNodeParams& params) { graph_api::copy_prefix(*nodeParams, params.memset); });
  }

  GRAPH_TYPED_ADD(cuGraphAddHostNode, CUDA_HOST_NODE_PARAMS, host)
  GRAPH_TYPED_SET(cuGraphHostNodeSetParams, CUDA_HOST_NODE_PARAMS, host(given))
  GRAPH_TYPED_EXEC_SET(cuGraphExecHostNodeSetParams, CUDA_HOST_NODE_PARAMS, host)
  GRAPH_EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS * nodeParams) {
    return graph_api::give(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, [&](const CUgraphNodeParams& params) {
      graph_api::copy_prefix(*nodeParams, params.host);
    });
  }

  GRAPH_TYPED_ADD(cuGraphAddBatchMemOpNode, CUDA_BATCH_MEM_OP_NODE_PARAMS, batch)
  GRAPH_TYPED_SET(cuGraphBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, batch(given))
  GRAPH_TYPED_EXEC_SET(cuGraphExecBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, batch)
  GRAPH_EXPORT CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                                       CUDA_BATCH_MEM_OP_NODE_PARAMS * nodeParams_out) {
    return graph_api::give(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out,
                           [&](const CUgraphNodeParams& params) {
                             *nodeParams_out = {params.memOp.ctx, params.memOp.count, params.memOp.paramArray,
                                                params.memOp.flags};
                           });
  }

  GRAPH_EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode * phGraphNode, CUgraph hGraph,
                                                 const CUgraphNode* dependencies, size_t numDependencies,
                                                 CUgraph childGraph) {
    CUgraphNodeParams params = graph_api::child(childGraph);
    return graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params);
  }
  GRAPH_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph * phGraph) {
    return graph_api::give(hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph,
                           [&](const CUgraphNodeParams& params) { *phGraph = params.graph.graph; });
  }
  GRAPH_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                           CUgraph childGraph) {
    CUgraphNodeParams params = graph_api::child(childGraph);
    return graph_api::set_exec_node(hGraphExec, hNode, params);
  }

  GRAPH_EXPORT CUresult cuGraphAddEventRecordNode(CUgraphNode * phGraphNode, CUgraph hGraph,
                                                  const CUgraphNode* dependencies, size_t numDependencies,
                                                  CUevent event) {
    CUgraphNodeParams params = graph_api::record(event);
    return graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params);
  }
  GRAPH_EXPORT CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent * event_out) {
    return graph_api::give(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out,
                           [&](const CUgraphNodeParams& params) { *event_out = params.eventRecord.event; });
  }
  GRAPH_EXPORT CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
    CUgraphNodeParams params = graph_api::record(event);
    return graph_api::set_node(hNode, params);
  }
  GRAPH_EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                           CUevent event) {
    CUgraphNodeParams params = graph_api::record(event);
    return graph_api::set_exec_node(hGraphExec, hNode, params);
  }

  GRAPH_EXPORT CUresult cuGraphAddEventWaitNode(CUgraphNode * phGraphNode, CUgraph hGraph,
                                                const CUgraphNode* dependencies, size_t numDependencies,
                                                CUevent event) {
    CUgraphNodeParams params = graph_api::wait(event);
    return graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params);
  }
  GRAPH_EXPORT CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent * event_out) {
    return graph_api::give(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out,
                           [&](const CUgraphNodeParams& params) { *event_out = params.eventWait.event; });
  }
  GRAPH_EXPORT CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
    CUgraphNodeParams params = graph_api::wait(event);
    return graph_api::set_node(hNode, params);
  }
  GRAPH_EXPORT CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                         CUevent event) {
    CUgraphNodeParams params = graph_api::wait(event);
    return graph_api::set_exec_node(hGraphExec, hNode, params);
  }

  GRAPH_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode * phGraphNode, CUgraph hGraph,
                                               const CUgraphNode* dependencies, size_t numDependencies,
                                               CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
    if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = graph_api::of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    graph_api::copy_prefix(params.alloc, *nodeParams);
    const CUresult result =
        graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params);
    if (result == CUDA_SUCCESS) nodeParams->dptr = params.alloc.dptr;
    return result;
  }
  GRAPH_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                                     CUDA_MEM_ALLOC_NODE_PARAMS * params_out) {
    return graph_api::give(
        hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out,
        [&](const CUgraphNodeParams& params) { graph_api::copy_prefix(*params_out, params.alloc); });
  }
  GRAPH_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode * phGraphNode, CUgraph hGraph,
                                              const CUgraphNode* dependencies, size_t numDependencies,
                                              CUdeviceptr dptr) {
    CUgraphNodeParams params = graph_api::of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
    params.free.dptr = dptr;
    return graph_api::add_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params);
  }
  GRAPH_EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr * dptr_out) {
    return graph_api::give(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out,
                           [&](const CUgraphNodeParams& params) { *dptr_out = params.free.dptr; });
  }

}  // GRAPH_FUNCTIONS

#undef GRAPH_TYPED_ADD
#undef GRAPH_TYPED_ADD_IN
#undef GRAPH_TYPED_SET
#undef GRAPH_TYPED_EXEC_SET
#undef GRAPH_TYPED_EXEC_SET_IN
