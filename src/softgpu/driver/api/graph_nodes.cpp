// Nodes of graphs: adding, reading, changing.
#include <utility>

#include "softgpu/driver/base/cuda_api.h"
#define GRAPH_EXPORT
#define GRAPH_FUNCTIONS extern "C"
#include "shared_api/typed_node_exports.h"
#include "softgpu/driver/api/graph_entry.h"
#include "softgpu/driver/api/node_parameters.h"

using namespace softgpu::driver;

namespace graph_api {

CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                  const CUgraphEdgeData* data, size_t count, CUgraphNodeParams& params) {
  return graph_entry([&] {
    require(out != nullptr);
    const auto into = graph_of(graph);
    std::vector<GraphNode*> after = nodes_of(*into, dependencies, count);
    // A graph that owned itself would never end, and walking it would not either.
    if (params.type == CU_GRAPH_NODE_TYPE_GRAPH &&
        params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
      require(!graph_of(params.graph.graph)->holds(*into));
    Operation operation = make_operation(params);
    GraphNode* const node = into->add(operation.type, std::move(operation.parameters),
                                      std::move(operation.run), std::move(after), edge_data(data, count));
    node->context = context_of(params);
    if (auto* const conditional = std::get_if<Conditional>(&node->parameters))
      params.conditional.phGraph_out = conditional->handles.data();
    *out = handle_of(node);
  });
}

CUresult set_node(CUgraphNode handle, CUgraphNodeParams& params) {
  return graph_entry([&] {
    GraphNode* const node = node_of(handle);
    require(params.type == node->type);
    require(node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->type != CU_GRAPH_NODE_TYPE_MEM_FREE &&
                node->type != CU_GRAPH_NODE_TYPE_CONDITIONAL && node->type != CU_GRAPH_NODE_TYPE_GRAPH,
            CUDA_ERROR_NOT_SUPPORTED);
    Operation operation = make_operation(params, node->parameters);
    node->parameters_before = std::exchange(node->parameters, std::move(operation.parameters));
    node->run = std::move(operation.run);
  });
}

CUresult get_node(CUgraphNode handle, CUgraphNodeParams& params) {
  return graph_entry([&] { describe_node(*node_of(handle), params); });
}

CUresult set_exec_node(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams& params) {
  return graph_entry([&] {
    const GraphNode* const node = node_of(handle);
    require(params.type == node->type);
    require(node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->type != CU_GRAPH_NODE_TYPE_MEM_FREE &&
                node->type != CU_GRAPH_NODE_TYPE_CONDITIONAL,
            CUDA_ERROR_NOT_SUPPORTED);
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
      exec_of(exec)->change_child(*node, *graph_of(params.graph.graph));
      return;
    }
    exec_of(exec)->change(*node, [&](GraphPlan::Step& step) {
      Operation operation = make_operation(params, step.parameters);
      step.parameters = std::move(operation.parameters);
      step.run = std::move(operation.run);
    });
  });
}

}  // namespace graph_api

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  return graph_entry([&] {
    require(value != nullptr);
    set_kernel_attribute(*node_of(hNode), attr, *value);
  });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  return graph_entry([&] {
    require(value_out != nullptr);
    *value_out = kernel_attribute(*node_of(hNode), attr);
  });
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return graph_entry([&] {
    const GraphNode* const from = node_of(src);
    GraphNode* const to = node_of(dst);
    require(from->type == CU_GRAPH_NODE_TYPE_KERNEL && to->type == CU_GRAPH_NODE_TYPE_KERNEL);
    set_kernel_attribute(*to, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                         kernel_attribute(*from, CU_LAUNCH_ATTRIBUTE_COOPERATIVE));
    for (const auto& [id, value] : from->attributes)
      set_kernel_attribute(*to, static_cast<CUlaunchAttributeID>(id), value);
  });
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph, CUcontext,
                                        unsigned int defaultLaunchValue, unsigned int flags) {
  return graph_entry([&] {
    require(pHandle_out != nullptr && (flags & ~static_cast<unsigned>(CU_GRAPH_COND_ASSIGN_DEFAULT)) == 0);
    const auto graph = graph_of(hGraph);
    auto made = make_conditional(*pHandle_out);
    made->at_launch = defaultLaunchValue;
    made->assign_at_launch = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
    graph->conditionals.push_back(std::move(made));
  });
}
