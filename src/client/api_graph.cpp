// Stream capture, and graphs made by it.
#include <cuda.h>

#include <atomic>

#include "client/call.h"
#include "client/export.h"
#include "client/refuse.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

/// Captures begun and not ended. While there are none, no stream can be capturing, and nobody has to ask.
std::atomic<int> open_captures{0};

template <class Table>
CUresult mint(Table& table, std::uint64_t& handle) {
  Graph* made = nullptr;
  handle = table.mint(made);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->context = current_context();
  return CUDA_SUCCESS;
}

/// After an ask that should have made the object: without success for the program nothing stays.
template <class Table, class M>
void undo(Table& table, std::uint64_t handle, CUresult own, const M& end) {
  if (own == CUDA_SUCCESS) {
    static_cast<void>(destroy(table, handle, end, current_context()));
  } else {
    table.drop(handle);
  }
}

messages::cuGraphDestroy end_of_graph(std::uint64_t handle) {
  messages::cuGraphDestroy m;
  m.hGraph = handle;
  return m;
}

}  // namespace

extern "C" {

GPUPOOL_EXPORT CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
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

GPUPOOL_EXPORT CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  messages::cuStreamBeginCapture_v2 m;
  m.hStream = raw(hStream);
  m.mode = mode;
  replies::cuStreamBeginCapture_v2 reply;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, &own);
  if (own != CUDA_SUCCESS) return result;
  ++open_captures;
  if (result != CUDA_SUCCESS) {  // begun, but the program hears of an earlier error
    CUgraph graph = nullptr;
    if (cuStreamEndCapture(hStream, &graph) == CUDA_SUCCESS) static_cast<void>(cuGraphDestroy(graph));
  }
  return result;
}

GPUPOOL_EXPORT CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = nullptr;
  if (open_captures.load() == 0) return CUDA_ERROR_ILLEGAL_STATE;
  messages::cuStreamEndCapture m;
  m.hStream = raw(hStream);
  if (const CUresult bad = mint(tables().graphs, m.phGraph); bad != CUDA_SUCCESS) return bad;
  replies::cuStreamEndCapture reply;
  CUresult own = CUDA_ERROR_ILLEGAL_STATE;
  const CUresult result = ask(m, reply, &own);
  // A capture that fails to end is over as well, unless it is another stream's.
  if (own != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED && own != CUDA_ERROR_ILLEGAL_STATE) --open_captures;
  if (result != CUDA_SUCCESS) {
    undo(tables().graphs, m.phGraph, own, end_of_graph(m.phGraph));
    return result;
  }
  *phGraph = handle_as<CUgraph>(m.phGraph);
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  messages::cuGraphCreate m;
  if (const CUresult bad = mint(tables().graphs, m.phGraph); bad != CUDA_SUCCESS) return bad;
  m.flags = flags;
  replies::cuGraphCreate reply;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, &own);
  if (result != CUDA_SUCCESS) {
    undo(tables().graphs, m.phGraph, own, end_of_graph(m.phGraph));
    return result;
  }
  *phGraph = handle_as<CUgraph>(m.phGraph);
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuGraphDestroy(CUgraph hGraph) {
  const Graph* const graph = tables().graphs.find(raw(hGraph));
  if (graph == nullptr) return bad_handle(wire::Kind::graph);
  messages::cuGraphDestroy m;
  m.hGraph = raw(hGraph);
  return destroy(tables().graphs, m.hGraph, m, graph->context);
}

GPUPOOL_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                    unsigned long long flags) {
  if (!known(wire::Kind::graph, hGraph)) return bad_handle(wire::Kind::graph);
  if (phGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  messages::cuGraphInstantiateWithFlags m;
  if (const CUresult bad = mint(tables().graph_execs, m.phGraphExec); bad != CUDA_SUCCESS) return bad;
  m.hGraph = raw(hGraph);
  m.flags = flags;
  replies::cuGraphInstantiateWithFlags reply;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, &own);
  if (result != CUDA_SUCCESS) {
    messages::cuGraphExecDestroy end;
    end.hGraphExec = m.phGraphExec;
    undo(tables().graph_execs, m.phGraphExec, own, end);
    return result;
  }
  *phGraphExec = handle_as<CUgraphExec>(m.phGraphExec);
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                     CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags);
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  instantiateParams->hErrNode_out = nullptr;
  return result;
}

GPUPOOL_EXPORT CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  const Graph* const graph = tables().graph_execs.find(raw(hGraphExec));
  if (graph == nullptr) return bad_handle(wire::Kind::graph_exec);
  messages::cuGraphExecDestroy m;
  m.hGraphExec = raw(hGraphExec);
  return destroy(tables().graph_execs, m.hGraphExec, m, graph->context);
}

// Capture information beyond the status names nodes of a graph under construction, which stay with the
// worker.
CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuStreamIsCapturing(stream, status);
  if (result != CUDA_SUCCESS || *status == CU_STREAM_CAPTURE_STATUS_NONE) return result;
  if (graph != nullptr || nodes != nullptr || edges != nullptr || count != nullptr) {
    return static_cast<CUresult>(
        refuse("cuStreamGetCaptureInfo", "the nodes of a graph under construction are not shown"));
  }
  if (id != nullptr) *id = raw(stream);
  return CUDA_SUCCESS;
}

#undef cuStreamGetCaptureInfo
CUresult cuStreamGetCaptureInfo(CUstream, CUstreamCaptureStatus*, cuuint64_t*);
CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                   const CUgraphNode**, size_t*);

GPUPOOL_EXPORT CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* status,
                                               cuuint64_t* id) {
  return capture_info(hStream, status, id, nullptr, nullptr, nullptr, nullptr);
}
GPUPOOL_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* status,
                                                  cuuint64_t* id, CUgraph* graph,
                                                  const CUgraphNode** dependencies, size_t* count) {
  return capture_info(hStream, status, id, graph, dependencies, nullptr, count);
}
GPUPOOL_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* status,
                                                  cuuint64_t* id, CUgraph* graph,
                                                  const CUgraphNode** dependencies,
                                                  const CUgraphEdgeData** edges, size_t* count) {
  return capture_info(hStream, status, id, graph, dependencies, edges, count);
}

}  // extern "C"
