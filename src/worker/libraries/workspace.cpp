#include "worker/libraries/workspace.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

namespace gpupool::worker {
namespace {

using GraphEnded = std::shared_ptr<std::atomic<bool>>;

/// The driver calls it when no graph has the memory any more, in a thread where nothing else may be done.
void tell_that_graphs_ended(void* told) {
  auto* const ended = static_cast<GraphEnded*>(told);
  (*ended)->store(true);
  delete ended;
}

/// Memory is `graph`'s until the graph and its copies have ended; for good where the driver will not tell.
void give_to_graph(const DriverApi& api, CUgraph graph, GraphMemory& memory) {
  memory.ended = nullptr;
  auto ended = std::make_shared<std::atomic<bool>>(false);
  auto told = std::make_unique<GraphEnded>(ended);
  CUuserObject object = nullptr;
  if (api.cuUserObjectCreate_(&object, told.get(), tell_that_graphs_ended, 1,
                              CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS)
    return;
  static_cast<void>(told.release());  // the object has it
  if (api.cuGraphRetainUserObject_(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS) {
    memory.ended = std::move(ended);
  } else {
    static_cast<void>(api.cuUserObjectRelease_(object, 1));
  }
}

/// Sizes in few steps: a capture that wants a little more each time would have a place for each.
std::size_t in_steps_of_graphs(std::size_t bytes) {
  constexpr std::size_t least = std::size_t{2} << 20, most = std::size_t{256} << 20;
  return bytes > most ? bytes : std::bit_ceil(bytes < least ? least : bytes);
}

/// The smallest one that `may_have` says yes to; null: there is none.
template <class MayHave>
GraphMemory* smallest_of_graphs(std::list<GraphMemory>& all, std::size_t bytes, const MayHave& may_have) {
  GraphMemory* best = nullptr;
  for (GraphMemory& each : all) {
    if (!each.taken && each.bytes >= bytes && (best == nullptr || each.bytes < best->bytes) && may_have(each))
      best = &each;
  }
  return best;
}

/// Memory for an operation that is being captured; null: there is none.
GraphMemory* memory_of_graph(const Execution& x, std::size_t bytes) {
  const DriverApi& api = x.libraries.api;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;  // asked for: without them a graph that has any is no answer
  std::size_t count = 0;
  if (api.cuStreamGetCaptureInfo_v3_(x.stream, &status, &capture, &graph, &nodes, &edges, &count) !=
          CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return nullptr;
  std::list<GraphMemory>& all = x.state.of_graphs;
  GraphMemory* found = smallest_of_graphs(all, bytes, [&](const GraphMemory& each) {
    return each.capture == capture && each.stream == x.stream;
  });
  if (found != nullptr) return found;
  found = smallest_of_graphs(
      all, bytes, [](const GraphMemory& each) { return each.ended != nullptr && each.ended->load(); });
  if (found == nullptr) {
    const std::size_t size = in_steps_of_graphs(bytes);
    CUdeviceptr address = 0;
    if (api.cuMemAlloc_v2_(&address, size) != CUDA_SUCCESS) return nullptr;
    found = &all.emplace_back();
    found->address = address;
    found->bytes = size;
  }
  found->capture = capture;
  found->stream = x.stream;
  give_to_graph(api, graph, *found);
  return found;
}

/// Else the pool's memory goes back to the device whenever somebody waits for it, and the next operation has
/// it mapped anew. Programs do not see this pool: theirs are in memory that their share counts.
void keep_memory_in_pool(const Execution& x) {
  if (x.state.pool_asked) return;
  x.state.pool_asked = true;
  const DriverApi& api = x.libraries.api;
  CUdevice device = 0;
  CUmemoryPool pool = nullptr;
  cuuint64_t kept = cuuint64_t{256} << 20;
  if (api.cuCtxGetDevice_(&device) == CUDA_SUCCESS &&
      api.cuDeviceGetMemPool_(&pool, device) == CUDA_SUCCESS &&
      api.cuMemPoolSetAttribute_(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept) == CUDA_SUCCESS)
    x.state.pool = pool;
}

}  // namespace

Workspace::Workspace(const Execution& x, std::size_t bytes)
    : api_(x.libraries.api), stream_(x.stream), bytes_(bytes) {
  if (bytes == 0) return;
  if (x.captured) {
    of_graph_ = memory_of_graph(x, bytes);
    if (of_graph_ == nullptr) return;
    of_graph_->taken = true;
    address_ = of_graph_->address;
    return;
  }
  keep_memory_in_pool(x);
  if (api_.cuMemAllocAsync_(&address_, bytes, stream_) != CUDA_SUCCESS) address_ = 0;
}

Workspace::~Workspace() {
  if (of_graph_ != nullptr) {
    of_graph_->taken = false;
  } else if (address_ != 0) {
    static_cast<void>(api_.cuMemFreeAsync_(address_, stream_));
  }
}

}  // namespace gpupool::worker
