// Stream capture.
#include <cuda.h>

#include <atomic>
#include <thread>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/capture.h"
#include "client/call/objects.h"
#include "client/objects/graph_store.h"
#include "client/process/session_belongings.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuStreamBeginCapture
#undef cuStreamGetCaptureInfo
#undef cuStreamUpdateCaptureDependencies

namespace {

using wire::Kind;

/// The captures that are open, by their streams: each with the thread that must end it, none for a relaxed
/// one.
struct Begun {
  Mutex mutex;
  std::map<std::uint64_t, std::thread::id> by GUARDED_BY(mutex);
};
Begun& begun() {
  static Begun& all = kept_for_session<Begun>([](Begun& kept) {
    const MutexLock lock(kept.mutex);
    kept.by.clear();
    open_captures = 0;
  });
  return all;
}

bool is_mode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

/// A capture that is about to begin. It is noted before: once it has begun, nothing may fail for want of
/// memory.
class Beginning {
 public:
  Beginning(CUstream stream, CUstreamCaptureMode mode)
      : stream_(raw(stream)),
        ends_(mode == CU_STREAM_CAPTURE_MODE_RELAXED ? std::thread::id() : std::this_thread::get_id()) {
    const MutexLock lock(begun().mutex);
    forgets_ = begun().by.try_emplace(stream_, ends_).second;
    open_captures = static_cast<int>(begun().by.size());
  }
  ~Beginning() {
    if (!forgets_) return;
    const MutexLock lock(begun().mutex);
    begun().by.erase(stream_);
    open_captures = static_cast<int>(begun().by.size());
  }
  Beginning(const Beginning&) = delete;
  Beginning& operator=(const Beginning&) = delete;

  void has_begun() {
    const MutexLock lock(begun().mutex);
    begun().by[stream_] = ends_;
    forgets_ = false;
  }

 private:
  std::uint64_t stream_;
  std::thread::id ends_;
  bool forgets_;
};

/// After the worker began a capture, of which the program hears `result`.
CUresult has_begun(CUstream stream, Beginning& beginning, CUresult result) {
  beginning.has_begun();
  if (result != CUDA_SUCCESS) {  // begun, but the program hears of an earlier error
    CUgraph graph = nullptr;
    if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS) static_cast<void>(cuGraphDestroy(graph));
  }
  return result;
}

void has_ended(CUstream stream) {
  {
    const MutexLock lock(begun().mutex);
    begun().by.erase(raw(stream));
    open_captures = static_cast<int>(begun().by.size());
  }
  const MutexLock lock(graph_store().mutex);
  graph_store().captures.erase(raw(stream));
}

void mark_captured(std::uint64_t graph, bool capturing) {
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  if (const auto found = store.graphs.find(graph); found != store.graphs.end()) {
    found->second.complete = false;
    found->second.capturing = capturing;
  }
}

void forget_captured(std::uint64_t graph) {
  Ended ended;
  {
    const MutexLock lock(graph_store().mutex);
    end_graph(graph_store(), graph, ended);
  }
  ended.give_back();
}

/// What is captured in a stream is made in the stream's context.
std::uint64_t mint_captured(CUstream stream) {
  const Stream* const found = tables().streams.find(raw(stream));
  return mint_graph(0, false, found == nullptr ? 0 : found->context);
}

struct Info {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  std::uint64_t graph = 0;
  bool nameless = false;  ///< its nodes have names of another worker than the first (complete_graph)
};

/// Asks for everything about the capture of a stream, and keeps what the program is given pointers to.
CUresult ask_info(CUstream stream, Info& out) {
  messages::CaptureInfo m;
  m.stream = raw(stream);
  m.graph = mint_captured(stream);
  if (m.graph == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  replies::CaptureInfo reply;
  std::vector<std::byte> bytes;
  std::uint64_t context = 0;
  CUresult result = in_current_context(context);
  CUresult own = CUDA_ERROR_UNKNOWN;
  if (result == CUDA_SUCCESS) result = ask(m, reply, context, bytes, {}, nullptr, &own);
  if (own != CUDA_SUCCESS || reply.graph != m.graph) drop_graph(m.graph);
  if (result != CUDA_SUCCESS) return result;
  out.status = static_cast<CUstreamCaptureStatus>(reply.status);
  if (out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  out.id = reply.id;
  out.graph = reply.graph;
  mark_captured(out.graph, true);
  out.nameless = worker_of_stream(stream).index != 0;

  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  if (!store.graphs.contains(out.graph)) return CUDA_ERROR_UNKNOWN;
  CaptureShadow& kept = store.captures[raw(stream)];
  kept = {};
  if (out.nameless) return CUDA_SUCCESS;
  wire::Reader nodes(reply.nodes), edges(reply.edges);
  while (!nodes.rest().empty()) {
    const auto handle = nodes.get<std::uint64_t>();
    const auto type = static_cast<CUgraphNodeType>(nodes.get<std::int32_t>());
    const Kind kind = wire::Handle::from(handle).kind;
    if (!nodes.ok() || (kind != Kind::graph_node && kind != Kind::found_node)) return CUDA_ERROR_UNKNOWN;
    learn_node(store, handle, out.graph, type);
    kept.nodes.push_back(handle_as<CUgraphNode>(handle));
    kept.edges.push_back(edges.rest().empty() ? CUgraphEdgeData{} : edges.get<CUgraphEdgeData>());
  }
  return CUDA_SUCCESS;
}

CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
  if (!known(Kind::stream, stream)) return bad_handle(Kind::stream);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (open_captures.load() == 0) return runtime().initialised() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  Info info;
  if (const CUresult bad = ask_info(stream, info); bad != CUDA_SUCCESS) return bad;
  *status = info.status;
  if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (info.nameless && (nodes != nullptr || edges != nullptr)) {
    return refuse_mixed("cuStreamGetCaptureInfo", "the nodes of a capture on the second node or later");
  }
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  const CaptureShadow& kept = store.captures[raw(stream)];
  if (id != nullptr) *id = info.id;
  if (graph != nullptr) *graph = handle_as<CUgraph>(info.graph);
  if (nodes != nullptr) *nodes = kept.nodes.data();
  if (edges != nullptr) *edges = kept.edges.data();
  if (count != nullptr) *count = kept.nodes.size();
  return CUDA_SUCCESS;
}

CUresult update_dependencies(CUstream stream, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                             size_t count, unsigned flags) {
  if (!known(Kind::stream, stream)) return bad_handle(Kind::stream);
  if ((nodes == nullptr && count != 0) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    return CUDA_ERROR_INVALID_VALUE;
  if (open_captures.load() == 0) return CUDA_ERROR_ILLEGAL_STATE;
  for (size_t n = 0; n < count; ++n) {
    if (!is_graph_node(raw(nodes[n]))) return CUDA_ERROR_INVALID_VALUE;
  }
  messages::CaptureSetDependencies m;
  m.stream = raw(stream);
  m.dependencies = std::as_bytes(std::span(nodes, count));
  if (data != nullptr) m.edges = std::as_bytes(std::span(data, count));
  m.flags = flags;
  replies::CaptureSetDependencies reply;
  return ask(m, reply);
}

}  // namespace

namespace gpupool::client {

CUresult is_capturing(CUstream stream, bool& out) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  out = false;
  if (open_captures.load() == 0 || raw(stream) == 0 || raw(stream) == 1) return CUDA_SUCCESS;
  const CUresult result = cuStreamIsCapturing(stream, &status);
  out = result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
  return result;
}

void forget_capture(CUstream stream) {
  if (captures_are_open()) has_ended(stream);
}

}  // namespace gpupool::client

namespace gpupool::client::api {

CUresult cuStreamBeginCapture(CUstream);
CUresult cuStreamGetCaptureInfo(CUstream, CUstreamCaptureStatus*, cuuint64_t*);
CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                   const CUgraphNode**, size_t*);
CUresult cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode*, size_t, unsigned int);
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream, CUgraphNode*, const CUgraphEdgeData*, size_t,
                                              unsigned int);

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  if (!known(Kind::stream, hStream)) return bad_handle(Kind::stream);
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
  if (open_captures.load() == 0) return runtime().initialised() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  messages::cuStreamIsCapturing m;
  m.hStream = raw(hStream);
  replies::cuStreamIsCapturing reply;
  const CUresult result = ask(m, reply);
  if (result == CUDA_SUCCESS) *captureStatus = static_cast<CUstreamCaptureStatus>(reply.captureStatus);
  return result;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  runtime().begin_if_over();
  if (!known(Kind::stream, hStream)) return bad_handle(Kind::stream);
  if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  Beginning beginning(hStream, mode);
  messages::cuStreamBeginCapture_v2 m;
  m.hStream = raw(hStream);
  m.mode = mode;
  replies::cuStreamBeginCapture_v2 reply;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, &own);
  return own == CUDA_SUCCESS ? has_begun(hStream, beginning, result) : result;
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return api::cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  if (!known(Kind::stream, hStream)) return bad_handle(Kind::stream);
  if (!known(Kind::graph, hGraph)) return no_such_graph();
  if (!is_mode(mode) || (dependencies == nullptr && numDependencies != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t n = 0; n < numDependencies; ++n) {
    if (!is_graph_node(raw(dependencies[n]))) return CUDA_ERROR_INVALID_VALUE;
  }
  Beginning beginning(hStream, mode);
  messages::CaptureIntoGraph m;
  m.stream = raw(hStream);
  m.graph = raw(hGraph);
  m.dependencies = std::as_bytes(std::span(dependencies, numDependencies));
  if (dependencyData != nullptr) m.edges = std::as_bytes(std::span(dependencyData, numDependencies));
  replies::CaptureIntoGraph reply;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, &own);
  if (own != CUDA_SUCCESS) return result;
  mark_captured(raw(hGraph), true);
  return has_begun(hStream, beginning, result);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  if (!known(Kind::stream, hStream)) return bad_handle(Kind::stream);
  // Null where the program has the graph already: it captured into one of its own.
  CUgraph unwanted = nullptr;
  if (phGraph == nullptr) phGraph = &unwanted;
  *phGraph = nullptr;
  if (open_captures.load() == 0) return CUDA_ERROR_ILLEGAL_STATE;
  {
    const MutexLock lock(begun().mutex);
    const auto found = begun().by.find(raw(hStream));
    const bool anybody_ends_it = found == begun().by.end() || found->second == std::thread::id();
    if (!anybody_ends_it && found->second != std::this_thread::get_id())
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  messages::cuStreamEndCapture m;
  m.hStream = raw(hStream);
  m.phGraph = mint_captured(hStream);
  if (m.phGraph == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  replies::cuStreamEndCapture reply;
  CUresult own = CUDA_ERROR_ILLEGAL_STATE;
  const CUresult result = ask(m, reply, &own);
  // A capture that fails to end is over as well, unless it is another stream's.
  if (own != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED && own != CUDA_ERROR_ILLEGAL_STATE) has_ended(hStream);
  if (reply.phGraph != m.phGraph) drop_graph(m.phGraph);
  if (own != CUDA_SUCCESS) {  // a graph that was shown while it was captured is gone
    if (reply.phGraph != 0) forget_captured(reply.phGraph);
    return result;
  }
  mark_captured(reply.phGraph, false);
  if (result != CUDA_SUCCESS || phGraph == &unwanted) {
    if (reply.phGraph == m.phGraph) static_cast<void>(api::cuGraphDestroy(handle_as<CUgraph>(reply.phGraph)));
    return result;
  }
  *phGraph = handle_as<CUgraph>(reply.phGraph);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return capture_info(hStream, status, id, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  return capture_info(hStream, status, id, graph, dependencies, nullptr, count);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
  return capture_info(hStream, status, id, graph, dependencies, edges, count);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) {
  return update_dependencies(hStream, dependencies, nullptr, numDependencies, flags);
}
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                              unsigned int flags) {
  return update_dependencies(hStream, dependencies, dependencyData, numDependencies, flags);
}

// Capture for a graphics interface needs a context that was made for one, and cuCtxCreate makes none.
CUresult cuStreamBeginCaptureToCig(CUstream hStream, CUstreamCigCaptureParams* params) {
  if (!known(Kind::stream, hStream)) return bad_handle(Kind::stream);
  return params == nullptr || hStream == CU_STREAM_LEGACY ? CUDA_ERROR_INVALID_VALUE
                                                          : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuStreamEndCaptureToCig(CUstream hStream) {
  return known(Kind::stream, hStream) ? CUDA_ERROR_INVALID_VALUE : bad_handle(Kind::stream);
}

}  // namespace gpupool::client::api
