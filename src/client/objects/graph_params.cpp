#include "client/objects/graph_params.h"

#include "client/call/call.h"
#include "client/call/refuse.h"
#include "client/memory/copy.h"
#include "client/objects/graph_store.h"
#include "client/progress/host_functions.h"

namespace gpupool::client {
namespace {

bool is_host(CUmemorytype type, std::uint64_t unified) {
  return type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_UNIFIED && !is_device_address(unified));
}

/// Unified addresses are told apart here, where they mean something.
CUresult make_device_copy(CUgraphNodeParams& params) {
  CUDA_MEMCPY3D& copy = params.memcpy.copyParams;
  if (is_host(copy.srcMemoryType, copy.srcDevice) || is_host(copy.dstMemoryType, copy.dstDevice)) {
    return static_cast<CUresult>(
        refuse("a graph's copy node between host and device",
               "the host's memory is not in the machine with the device; copy before or after the launch"));
  }
  if (copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED) copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  if (copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED) copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcHost = copy.dstHost = nullptr;
  return CUDA_SUCCESS;
}

/// Whether a node reads, writes or computes elsewhere than where its graph is.
bool is_elsewhere(const CUgraphNodeParams& params, const WorkerLink& worker) {
  const auto other = [&](std::uint64_t address) {
    const auto found = worker_of_address(address);
    return found && *found != worker.index;
  };
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return params.kernel.ctx == nullptr && &worker_of_context(current_context()) != &worker;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return other(params.memset.dst);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return other(params.memcpy.copyParams.srcDevice) || other(params.memcpy.copyParams.dstDevice);
    default:
      return false;
  }
}

}  // namespace

CUresult prepare_params(std::uint64_t graph, CUgraphNodeParams& params) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return make_device_copy(params);
    case CU_GRAPH_NODE_TYPE_HOST:
      watch_host_functions(worker_of_context(context_for_graph(graph)));
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return static_cast<CUresult>(refuse("a graph's semaphore node", "there are no external semaphores"));
    default:
      return CUDA_SUCCESS;
  }
}

CUresult encode_params(std::uint64_t graph, const CUgraphNodeParams& params,
                       const std::vector<std::uint64_t>& bodies, std::vector<std::byte>& out) {
  wire::Buffer buffer;
  wire::Writer writer(buffer);
  const WorkerLink& worker = worker_of_context(context_for_graph(graph));
  ClientHandles handles(worker);
  const CUresult result = graphs::encode(params, handles, writer, bodies);
  if (runtime().several() && (handles.mixed() || is_elsewhere(params, worker))) {
    return refuse_mixed("a graph over several nodes", "what a node of a graph uses is where the graph is");
  }
  out.assign(buffer.bytes().begin(), buffer.bytes().end());
  return result;
}

}  // namespace gpupool::client
