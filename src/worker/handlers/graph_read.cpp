// Handlers of the messages that read graphs: what a program did not build itself its client learns from here.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <unordered_map>

#include "generated/handlers.h"
#include "worker/handlers/graph_handles.h"

namespace gpupool::worker {
namespace {

using wire::Kind;

/// What a reply refers to until it is sent.
wire::Buffer& first_field() {
  static thread_local wire::Buffer buffer;
  buffer.clear();
  return buffer;
}
wire::Buffer& second_field() {
  static thread_local wire::Buffer buffer;
  buffer.clear();
  return buffer;
}

CUresult nodes_of(Call& x, CUgraph graph, std::vector<CUgraphNode>& out) {
  std::size_t count = 0;
  if (const CUresult bad = x.api.cuGraphGetNodes_(graph, nullptr, &count); bad != CUDA_SUCCESS) return bad;
  if (count > wire::max_handles) return CUDA_ERROR_OUT_OF_MEMORY;
  out.resize(count);
  if (count == 0) return CUDA_SUCCESS;
  const CUresult result = x.api.cuGraphGetNodes_(graph, out.data(), &count);
  if (result == CUDA_SUCCESS) out.resize(std::min(count, out.size()));
  return result;
}

/// {u64 handle, i32 type} of each node.
CUresult put_nodes(Call& x, const std::vector<CUgraphNode>& nodes, std::uint64_t graph, wire::Writer& out) {
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (const CUresult bad = x.api.cuGraphNodeGetType_(node, &type); bad != CUDA_SUCCESS) return bad;
    const std::uint64_t value = x.session.graphs.node_in(node, graph);
    if (value == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    out.put(value);
    out.put(static_cast<std::int32_t>(type));
  }
  return CUDA_SUCCESS;
}

/// The parameters by the getter of the node's type, which every driver has.
CUresult read_params(Call& x, CUgraphNode node, CUgraphNodeParams& out) {
  const DriverApi& api = x.api;
  std::memset(&out, 0, sizeof(out));
  if (const CUresult bad = api.cuGraphNodeGetType_(node, &out.type); bad != CUDA_SUCCESS) return bad;
  switch (out.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
      const CUresult result = api.cuGraphKernelNodeGetParams_v2_(node, &kernel);
      std::memcpy(&out.kernel, &kernel, sizeof(kernel));
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return api.cuGraphMemcpyNodeGetParams_(node, &out.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS fill{};
      const CUresult result = api.cuGraphMemsetNodeGetParams_(node, &fill);
      std::memcpy(&out.memset, &fill, sizeof(fill));
      return result;
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      CUDA_HOST_NODE_PARAMS host{};
      const CUresult result = api.cuGraphHostNodeGetParams_(node, &host);
      out.host.fn = host.fn;
      out.host.userData = host.userData;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return api.cuGraphEventRecordNodeGetEvent_(node, &out.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return api.cuGraphEventWaitNodeGetEvent_(node, &out.eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
      const CUresult result = api.cuGraphMemAllocNodeGetParams_(node, &allocation);
      std::memcpy(&out.alloc, &allocation, sizeof(allocation));
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return api.cuGraphMemFreeNodeGetParams_(node, &out.free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
      const CUresult result = api.cuGraphBatchMemOpNodeGetParams_(node, &batch);
      out.memOp = {batch.ctx, batch.count, batch.paramArray, batch.flags};
      return result;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    default:  // child graphs and conditionals: the client knows their graphs by other messages
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

CUresult run_GraphRead(Call& x, const messages::GraphRead& m, replies::GraphRead& reply) {
  CUgraph graph = nullptr;
  if (!x.handles.find(Kind::graph, m.graph, graph)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<CUgraphNode> nodes;
  if (const CUresult bad = nodes_of(x, graph, nodes); bad != CUDA_SUCCESS) return bad;
  wire::Buffer& listed = first_field();
  wire::Writer list(listed);
  if (const CUresult bad = put_nodes(x, nodes, m.graph, list); bad != CUDA_SUCCESS) return bad;

  std::size_t count = 0;
  if (const CUresult bad = x.api.cuGraphGetEdges_v2_(graph, nullptr, nullptr, nullptr, &count);
      bad != CUDA_SUCCESS)
    return bad;
  if (count > wire::max_frame / 64) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count != 0) {
    const CUresult bad = x.api.cuGraphGetEdges_v2_(graph, from.data(), to.data(), data.data(), &count);
    if (bad != CUDA_SUCCESS) return bad;
  }
  wire::Buffer& joined = second_field();
  wire::Writer edges(joined);
  for (std::size_t n = 0; n < std::min(count, from.size()); ++n) {
    edges.put(x.session.graphs.node(from[n]));
    edges.put(x.session.graphs.node(to[n]));
    edges.put(data[n]);
  }
  reply.nodes = listed.bytes();
  reply.edges = joined.bytes();
  return CUDA_SUCCESS;
}

CUresult run_GraphReadNode(Call& x, const messages::GraphReadNode& m, replies::GraphReadNode& reply) {
  CUgraphNode node = nullptr;
  if (!x.handles.find(Kind::graph_node, m.node, node)) return CUDA_ERROR_INVALID_HANDLE;
  CUgraphNodeParams params;
  if (const CUresult bad = read_params(x, node, params); bad != CUDA_SUCCESS) return bad;
  wire::Buffer& text = first_field();
  wire::Writer out(text);
  GraphHandles handles(x);
  if (const CUresult bad = graphs::encode(params, handles, out); bad != CUDA_SUCCESS) return bad;
  reply.params = text.bytes();
  return CUDA_SUCCESS;
}

CUresult run_GraphOfChild(Call& x, const messages::GraphOfChild& m, replies::GraphOfChild&) {
  CUgraphNode node = nullptr;
  CUgraph graph = nullptr;
  if (!x.handles.find(Kind::graph_node, m.node, node) || !x.handles.vacant(Kind::graph, m.graph))
    return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = x.api.cuGraphChildGraphNodeGetGraph_(node, &graph);
  if (result != CUDA_SUCCESS) return result;
  if (x.session.graphs.graph(graph) != 0) return CUDA_ERROR_INVALID_HANDLE;
  x.session.graphs.bind_graph(m.graph, graph, m.node);
  return CUDA_SUCCESS;
}

CUresult run_GraphFindInClone(Call& x, const messages::GraphFindInClone& m,
                              replies::GraphFindInClone& reply) {
  CUgraphNode node = nullptr, twin = nullptr;
  CUgraph clone = nullptr;
  if (!x.handles.find(Kind::graph_node, m.node, node) || !x.handles.find(Kind::graph, m.clone, clone))
    return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = x.api.cuGraphNodeFindInClone_(&twin, node, clone);
  if (result == CUDA_SUCCESS) reply.node = x.session.graphs.node_in(twin, m.clone);
  return result;
}

CUresult run_GraphDot(Call& x, const messages::GraphDot& m, replies::GraphDot& reply) {
  CUgraph graph = nullptr;
  if (!x.handles.find(Kind::graph, m.graph, graph)) return CUDA_ERROR_INVALID_HANDLE;
  const int file = memfd_create("graph", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  CUresult result = x.api.cuGraphDebugDotPrint_(graph, path.c_str(), m.flags);
  const off_t size = lseek(file, 0, SEEK_END);
  if (result == CUDA_SUCCESS) {
    wire::Buffer& text = first_field();
    if (size < 0 || size > static_cast<off_t>(wire::max_frame / 2)) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (pread(file, text.grow(static_cast<std::size_t>(size)), static_cast<std::size_t>(size), 0) !=
               size) {
      result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    reply.text = text.bytes();
  }
  close(file);
  return result;
}

CUresult run_CaptureInfo(Call& x, const messages::CaptureInfo& m, replies::CaptureInfo& reply) {
  CUstream stream = nullptr;
  if (!x.handles.find(Kind::stream, m.stream, stream) || !x.handles.vacant(Kind::graph, m.graph))
    return CUDA_ERROR_INVALID_HANDLE;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  const CUresult result =
      x.api.cuStreamGetCaptureInfo_v3_(stream, &status, &id, &graph, &nodes, &edges, &count);
  if (result != CUDA_SUCCESS) return result;
  reply.status = status;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  reply.id = id;
  if (x.session.graphs.graph(graph) == 0) {
    x.session.graphs.bind_graph(m.graph, graph);
    x.session.graphs.captured.insert(m.graph);
  }
  reply.graph = x.session.graphs.graph(graph);
  if (nodes == nullptr) count = 0;
  wire::Buffer& listed = first_field();
  wire::Writer list(listed);
  const std::vector<CUgraphNode> tail(nodes, nodes + count);
  if (const CUresult bad = put_nodes(x, tail, reply.graph, list); bad != CUDA_SUCCESS) return bad;
  reply.nodes = listed.bytes();
  if (edges != nullptr) reply.edges = std::as_bytes(std::span(edges, count));
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker
