// Handlers of executable graphs, captures, and what belongs to them.
#include <cstring>

#include "generated/handlers.h"
#include "worker/handlers/graph_handles.h"

namespace gpupool::worker {
namespace {

using wire::Kind;

/// Bytes that the allocation nodes of a graph and of its child graphs give out.
CUresult allocated_by(Call& x, CUgraph graph, std::uint64_t& bytes, int depth = 0) {
  std::size_t count = 0;
  if (const CUresult bad = x.api.cuGraphGetNodes_(graph, nullptr, &count); bad != CUDA_SUCCESS) return bad;
  if (count > wire::max_handles || depth > 64) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<CUgraphNode> nodes(count);
  if (count == 0) return CUDA_SUCCESS;
  if (const CUresult bad = x.api.cuGraphGetNodes_(graph, nodes.data(), &count); bad != CUDA_SUCCESS)
    return bad;
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (const CUresult bad = x.api.cuGraphNodeGetType_(node, &type); bad != CUDA_SUCCESS) return bad;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
    CUgraph child = nullptr;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        x.api.cuGraphMemAllocNodeGetParams_(node, &allocation) == CUDA_SUCCESS) {
      bytes += allocation.bytesize;
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
               x.api.cuGraphChildGraphNodeGetGraph_(node, &child) == CUDA_SUCCESS) {
      if (const CUresult bad = allocated_by(x, child, bytes, depth + 1); bad != CUDA_SUCCESS) return bad;
    }
  }
  return CUDA_SUCCESS;
}

template <class T>
bool read_value(std::span<const std::byte> bytes, T& out) {
  if (bytes.size() != sizeof(T)) return false;
  std::memcpy(&out, bytes.data(), sizeof(T));
  return true;
}

template <class T>
std::span<const std::byte> kept_bytes(const T& value) {
  static thread_local T copy;
  copy = value;
  return std::as_bytes(std::span(&copy, 1));
}

/// Attributes whose value means the same at both ends.
bool is_plain(int attribute) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult run_cuStreamBeginCapture_v2(Call& x, const messages::cuStreamBeginCapture_v2& m,
                                     replies::cuStreamBeginCapture_v2&) {
  CUstream stream = nullptr;
  if (!x.handles.find(Kind::stream, m.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  x.waits();
  x.begins_capture(stream);
  // Relaxed, whatever the program asks for: in the other modes the driver would forbid this process calls of
  // its own (staging memory, timing events) and end the program's capture for them. The client sees to it
  // that a capture ends in the thread that began it.
  const CUresult result = x.api.cuStreamBeginCapture_v2_(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result != CUDA_SUCCESS) return result;
  x.equipment.parking.obstacles.capture_began(stream);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  if (x.api.cuStreamGetCaptureInfo_v3_(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr) ==
      CUDA_SUCCESS)
    x.session.graphs.captures[m.hStream] = graph;
  return CUDA_SUCCESS;
}

CUresult run_cuStreamEndCapture(Call& x, const messages::cuStreamEndCapture& m,
                                replies::cuStreamEndCapture& reply) {
  CUstream stream = nullptr;
  if (!x.handles.find(Kind::stream, m.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!x.handles.vacant(Kind::graph, m.phGraph)) return CUDA_ERROR_INVALID_HANDLE;
  CUgraph graph = nullptr;
  const CUresult result = x.api.cuStreamEndCapture_(stream, &graph);
  if (result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED || result == CUDA_ERROR_ILLEGAL_STATE) return result;
  x.equipment.parking.obstacles.capture_ended(stream);
  if (result != CUDA_SUCCESS || graph == nullptr) {
    x.keep_fields_on_error();
    reply.phGraph = x.session.graphs.abandon_capture(m.hStream);
    return result;
  }
  x.session.graphs.captures.erase(m.hStream);
  reply.phGraph = x.session.graphs.graph(graph);
  x.session.graphs.captured.erase(reply.phGraph);
  if (reply.phGraph == 0) {
    x.session.graphs.bind_graph(m.phGraph, graph);
    reply.phGraph = m.phGraph;
  }
  return result;
}

CUresult run_cuGraphInstantiateWithFlags(Call& x, const messages::cuGraphInstantiateWithFlags& m,
                                         replies::cuGraphInstantiateWithFlags&) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  if (!x.handles.find(Kind::graph, m.hGraph, graph) || !x.handles.vacant(Kind::graph_exec, m.phGraphExec))
    return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t bytes = 0;
  if (x.session.graphs.has_allocations) {
    if (const CUresult bad = allocated_by(x, graph, bytes); bad != CUDA_SUCCESS) return bad;
  }
  MemoryAccount* const account = bytes == 0 ? nullptr : x.session.account_of_current();
  if (bytes != 0 && (account == nullptr || !account->reserve_beside(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = x.api.cuGraphInstantiateWithFlags_(&exec, graph, m.flags);
  if (result == CUDA_SUCCESS) {
    x.handles.bind(Kind::graph_exec, m.phGraphExec, exec);
    if (account != nullptr) x.session.graphs.charge(m.phGraphExec, *account, bytes);
  } else if (account != nullptr) {
    account->release_beside(bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) account->refused(bytes);
  }
  return result;
}

CUresult run_cuGraphExecDestroy(Call& x, const messages::cuGraphExecDestroy& m,
                                replies::cuGraphExecDestroy&) {
  CUgraphExec exec = nullptr;
  if (!x.handles.find(Kind::graph_exec, m.hGraphExec, exec)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = x.api.cuGraphExecDestroy_(exec);
  x.handles.drop(Kind::graph_exec, m.hGraphExec);
  x.session.graphs.release(m.hGraphExec);
  return result;
}

CUresult run_cuGraphLaunch(Call& x, const messages::cuGraphLaunch& m, replies::cuGraphLaunch&) {
  CUgraphExec graph = nullptr;
  CUstream stream = nullptr;
  if (!x.handles.find(Kind::graph_exec, m.hGraph, graph) ||
      !x.handles.find(Kind::stream, m.hStream, stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (const CUresult bad = x.submits(stream, 1, reinterpret_cast<std::uintptr_t>(graph), "graph");
      bad != CUDA_SUCCESS)
    return bad;
  return x.api.cuGraphLaunch_(graph, stream);
}

CUresult run_GraphUpdateExec(Call& x, const messages::GraphUpdateExec& m, replies::GraphUpdateExec& reply) {
  CUgraphExec exec = nullptr;
  CUgraph graph = nullptr;
  if (!x.handles.find(Kind::graph_exec, m.exec, exec) || !x.handles.find(Kind::graph, m.graph, graph))
    return CUDA_ERROR_INVALID_HANDLE;
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = x.api.cuGraphExecUpdate_v2_(exec, graph, &info);
  x.keep_fields_on_error();
  reply.result = info.result;
  reply.node = info.errorNode == nullptr ? 0 : x.session.graphs.node_in(info.errorNode, m.graph);
  reply.from = info.errorFromNode == nullptr ? 0 : x.session.graphs.node_in(info.errorFromNode, m.graph);
  return result;
}

CUresult run_GraphSetKernelAttribute(Call& x, const messages::GraphSetKernelAttribute& m,
                                     replies::GraphSetKernelAttribute&) {
  CUgraphNode node = nullptr;
  CUkernelNodeAttrValue value{};
  if (!x.handles.find(Kind::graph_node, m.node, node)) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_plain(m.attribute) || !read_value(m.value, value)) return CUDA_ERROR_INVALID_VALUE;
  return x.api.cuGraphKernelNodeSetAttribute_(node, static_cast<CUkernelNodeAttrID>(m.attribute), &value);
}

CUresult run_GraphKernelAttribute(Call& x, const messages::GraphKernelAttribute& m,
                                  replies::GraphKernelAttribute& reply) {
  CUgraphNode node = nullptr;
  CUkernelNodeAttrValue value{};
  if (!x.handles.find(Kind::graph_node, m.node, node)) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_plain(m.attribute)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      x.api.cuGraphKernelNodeGetAttribute_(node, static_cast<CUkernelNodeAttrID>(m.attribute), &value);
  reply.value = kept_bytes(value);
  return result;
}

CUresult run_SetStreamAttribute(Call& x, const messages::SetStreamAttribute& m,
                                replies::SetStreamAttribute&) {
  CUstream stream = nullptr;
  CUstreamAttrValue value{};
  if (!x.handles.find(Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_plain(m.attribute) || !read_value(m.value, value)) return CUDA_ERROR_INVALID_VALUE;
  return x.api.cuStreamSetAttribute_(stream, static_cast<CUstreamAttrID>(m.attribute), &value);
}

CUresult run_StreamAttribute(Call& x, const messages::StreamAttribute& m, replies::StreamAttribute& reply) {
  CUstream stream = nullptr;
  CUstreamAttrValue value{};
  if (!x.handles.find(Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_plain(m.attribute)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      x.api.cuStreamGetAttribute_(stream, static_cast<CUstreamAttrID>(m.attribute), &value);
  reply.value = kept_bytes(value);
  return result;
}

CUresult run_BatchMemoryOperation(Call& x, const messages::BatchMemoryOperation& m,
                                  replies::BatchMemoryOperation&) {
  CUstream stream = nullptr;
  if (!x.handles.find(Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  const std::size_t count = m.entries.size() / sizeof(CUstreamBatchMemOpParams);
  if (m.entries.size() % sizeof(CUstreamBatchMemOpParams) != 0 || count == 0 || count > graphs::max_batch)
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUstreamBatchMemOpParams> entries(count);
  std::memcpy(entries.data(), m.entries.data(), m.entries.size());
  if (const CUresult bad = x.submits(stream); bad != CUDA_SUCCESS) return bad;
  return x.api.cuStreamBatchMemOp_v2_(stream, static_cast<unsigned>(count), entries.data(), m.flags);
}

CUresult run_GraphMemoryAttribute(Call& x, const messages::GraphMemoryAttribute& m,
                                  replies::GraphMemoryAttribute& reply) {
  CUdevice device = 0;
  if (!x.device(m.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  cuuint64_t value = 0;
  const CUresult result =
      x.api.cuDeviceGetGraphMemAttribute_(device, static_cast<CUgraphMem_attribute>(m.attribute), &value);
  reply.value = value;
  return result;
}

CUresult run_GraphResetMemoryAttribute(Call& x, const messages::GraphResetMemoryAttribute& m,
                                       replies::GraphResetMemoryAttribute&) {
  CUdevice device = 0;
  if (!x.device(m.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  cuuint64_t zero = 0;
  return x.api.cuDeviceSetGraphMemAttribute_(device, static_cast<CUgraphMem_attribute>(m.attribute), &zero);
}

CUresult run_LaunchHostFunction(Call& x, const messages::LaunchHostFunction& m,
                                replies::LaunchHostFunction&) {
  CUstream stream = nullptr;
  if (!x.handles.find(Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  // A graph calls its functions at each launch.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const bool can_capture = stream != nullptr && stream != CU_STREAM_LEGACY;
  if (can_capture) {
    if (const CUresult bad = x.api.cuStreamIsCapturing_(stream, &status); bad != CUDA_SUCCESS) return bad;
  }
  const bool once = status == CU_STREAM_CAPTURE_STATUS_NONE;
  if (m.token == 0) return CUDA_ERROR_INVALID_VALUE;
  // The token after the turn: a call that had none is executed again, with the same.
  if (const CUresult bad = x.submits_function(stream); bad != CUDA_SUCCESS) return bad;
  void* const argument = x.conversation.host_calls.argument(m.token, once);
  if (argument == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return x.api.cuLaunchHostFunc_(stream, &HostCalls::call, argument);
}

CUresult run_HostFunctionDone(Call& x, const messages::HostFunctionDone& m, replies::HostFunctionDone&) {
  x.conversation.host_calls.done(m.run);
  return CUDA_SUCCESS;
}

CUresult run_CaptureAllocation(Call& x, const messages::CaptureAllocation& m,
                               replies::CaptureAllocation& reply) {
  CUstream stream = nullptr;
  if (!x.handles.find(Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (const CUresult bad = x.api.cuStreamIsCapturing_(stream, &status); bad != CUDA_SUCCESS) return bad;
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  // Outside of a capture this would be memory that nobody accounts for.
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_ILLEGAL_STATE;
  CUdeviceptr address = 0;
  const CUresult result = x.api.cuMemAllocAsync_(&address, m.size, stream);
  x.session.graphs.has_allocations = true;
  reply.address = address;
  return result;
}

CUresult run_FreeGraphMemory(Call& x, const messages::FreeGraphMemory& m, replies::FreeGraphMemory&) {
  CUstream stream = nullptr;
  if (!x.handles.find(Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = x.submits(stream); bad != CUDA_SUCCESS) return bad;
  return x.api.cuMemFreeAsync_(m.address, stream);
}

}  // namespace gpupool::worker
