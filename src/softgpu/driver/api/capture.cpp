// Stream capture.
#include <algorithm>

#include "base/mutex.h"
#include "softgpu/driver/api/graph_entry.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

std::atomic<unsigned long long> next_capture_id{1};

CUgraph graph_handle(const std::shared_ptr<Graph>& graph) {
  return reinterpret_cast<CUgraph>(graph.get());
}

// Into a new graph, or into `graph` behind `tail`.
void begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
           const std::shared_ptr<Graph>& graph, std::vector<GraphNodeRef> tail) {
  require(mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
          mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  require(stream->role() != Stream::Role::legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const gpupool::MutexLock order(stream->context().submit_mutex);
  require(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>();
  capture->id = next_capture_id.fetch_add(1);
  capture->mode = mode;
  capture->graph = graph ? graph : std::make_shared<Graph>();
  capture->makes_graph = graph == nullptr;
  capture->origin = stream.get();
  capture->thread = std::this_thread::get_id();
  if (capture->makes_graph) registry<Graph>().add<CUgraph>(capture->graph);
  stream->capture = std::move(capture);
  stream->capture_tail = std::move(tail);
}

// Work of a joined stream that nothing of the origin comes after would be lost at the end.
bool is_joined(const Stream& origin, const Stream& other) {
  std::vector<const GraphNode*> open(origin.capture_tail.begin(), origin.capture_tail.end());
  std::set<const GraphNode*> seen;
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    open.insert(open.end(), node->after.begin(), node->after.end());
  }
  return std::all_of(other.capture_tail.begin(), other.capture_tail.end(),
                     [&](const GraphNode* node) { return seen.contains(node); });
}

struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned long long id = 0;
  CUgraph graph = nullptr;
  const GraphNodeRef* tail = nullptr;
  std::size_t tail_size = 0;
};

CaptureInfo info_of(CUstream handle) {
  const auto stream = resolve_stream(handle);
  const gpupool::MutexLock order(stream->context().submit_mutex);
  CaptureInfo info;
  if (!stream->capture) return info;
  info.status =
      stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  info.id = stream->capture->id;
  info.graph = graph_handle(stream->capture->graph);
  info.tail = stream->capture_tail.data();
  info.tail_size = stream->capture_tail.size();
  return info;
}

CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, const CUgraphEdgeData** edges, std::size_t* count) {
  return entry([&] {
    require(status != nullptr);
    const CaptureInfo info = info_of(stream);
    *status = info.status;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return;
    if (id) *id = info.id;
    if (graph) *graph = info.graph;
    // Valid until the stream records its next node, as documented.
    if (dependencies) *dependencies = reinterpret_cast<const CUgraphNode*>(info.tail);
    if (edges) *edges = nullptr;
    if (count) *count = info.tail_size;
  });
}

CUresult update_dependencies(CUstream handle, CUgraphNode* nodes, std::size_t count, unsigned flags) {
  return entry([&] {
    require(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    const auto stream = resolve_stream(handle);
    const gpupool::MutexLock order(stream->context().submit_mutex);
    require(stream->capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    const std::vector<GraphNode*> given = nodes_of(*stream->capture->graph, nodes, count);
    auto& tail = stream->capture_tail;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) tail.clear();
    for (GraphNode* node : given) {
      if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
    }
  });
}

}  // namespace

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return entry([&] { begin(resolve_stream(hStream), mode, nullptr, {}); });
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData*, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  return entry([&] {
    const auto graph = graph_of(hGraph);
    begin(resolve_stream(hStream), mode, graph, nodes_of(*graph, dependencies, numDependencies));
  });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return entry([&] {
    if (phGraph) *phGraph = nullptr;
    const auto stream = resolve_stream(hStream);
    const gpupool::MutexLock order(stream->context().submit_mutex);
    const auto capture = stream->capture;
    require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    require(capture->origin == stream.get(), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    require(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == std::this_thread::get_id(),
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    const bool joined = std::all_of(capture->joined.begin(), capture->joined.end(),
                                    [&](const auto& other) { return is_joined(*stream, *other); });
    stream->capture.reset();
    stream->capture_tail.clear();
    for (const auto& other : capture->joined) {
      other->capture.reset();
      other->capture_tail.clear();
    }
    const CUgraph graph = graph_handle(capture->graph);
    if (capture->invalidated || !joined) {
      if (capture->makes_graph) registry<Graph>().take(graph);
      fail(capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    if (phGraph) {
      *phGraph = graph;
    } else if (capture->makes_graph) {
      registry<Graph>().take(graph);  // nobody will know it
    }
  });
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return entry([&] {
    require(captureStatus != nullptr);
    *captureStatus = info_of(hStream).status;
  });
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  return capture_info(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, size_t* numDependencies_out) {
  return capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, nullptr,
                      numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  return capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                      numDependencies_out);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) {
  return update_dependencies(hStream, dependencies, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData*, size_t numDependencies,
                                              unsigned int flags) {
  return update_dependencies(hStream, dependencies, numDependencies, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return entry([&] {
    require(mode != nullptr);
    // No call is refused for the thread's mode here; the value is kept so that programs can restore it.
    thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::swap(*mode, current);
  });
}
