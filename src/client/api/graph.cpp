// Graphs as a whole: making, cloning, ending, their user objects, their picture.
#include <cuda.h>

#include <cstdio>
#include <memory>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/graph_store.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

using wire::Kind;

template <class M, class Reply>
CUresult ask_anywhere(const M& m, Reply& reply, CUresult* own = nullptr) {
  std::vector<std::byte> bytes;
  return ask(m, reply, current_context(), bytes, {}, nullptr, own);
}

/// After an ask that should have made the graph: without success for the program nothing stays.
void undo(std::uint64_t graph, CUresult own) {
  if (own == CUDA_SUCCESS) {
    static_cast<void>(cuGraphDestroy(handle_as<CUgraph>(graph)));
  } else {
    drop_graph(graph);
  }
}

/// So many references of a user object as CUDA lets a call name.
bool may_count(unsigned count) {
  return count > 0 && count <= INT32_MAX;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  messages::cuGraphCreate m;
  m.phGraph = mint_graph();
  if (m.phGraph == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  m.flags = flags;
  replies::cuGraphCreate reply;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask_anywhere(m, reply, &own);
  if (result != CUDA_SUCCESS) {
    undo(m.phGraph, own);
    return result;
  }
  *phGraph = handle_as<CUgraph>(m.phGraph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  if (!known(Kind::graph, hGraph)) return no_such_graph();
  Ended ended;
  {
    GraphStore& store = graph_store();
    const MutexLock lock(store.mutex);
    const auto found = store.graphs.find(raw(hGraph));
    if (found == store.graphs.end() || found->second.owner != 0) return CUDA_ERROR_INVALID_VALUE;
    end_graph(store, raw(hGraph), ended);
  }
  messages::cuGraphDestroy m;
  m.hGraph = raw(hGraph);
  const CUresult result = post(m, current_context());
  ended.give_back();
  return result;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  if (!known(Kind::graph, originalGraph)) return no_such_graph();
  if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  messages::GraphClone m;
  m.graph = raw(originalGraph);
  m.clone = mint_graph(0, false, context_for_graph(m.graph));
  if (m.clone == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  replies::GraphClone reply;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask_anywhere(m, reply, &own);
  if (result != CUDA_SUCCESS) {
    undo(m.clone, own);
    return result;
  }
  {
    GraphStore& store = graph_store();
    const MutexLock lock(store.mutex);
    const auto clone = store.graphs.find(m.clone), original = store.graphs.find(m.graph);
    if (clone != store.graphs.end() && original != store.graphs.end())
      clone->second.user_objects.add(original->second.user_objects);
  }
  *phGraphClone = handle_as<CUgraph>(m.clone);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
  if (!known(Kind::graph, hClonedGraph) || !is_graph_node(raw(hOriginalNode))) return no_such_graph();
  if (phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = complete_graph(raw(hClonedGraph)); bad != CUDA_SUCCESS) return bad;
  messages::GraphFindInClone m;
  m.node = raw(hOriginalNode);
  m.clone = raw(hClonedGraph);
  replies::GraphFindInClone reply;
  if (const CUresult bad = ask_anywhere(m, reply); bad != CUDA_SUCCESS) return bad;
  if (!is_graph_node(reply.node)) return CUDA_ERROR_UNKNOWN;
  *phNode = handle_as<CUgraphNode>(reply.node);
  return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  if (!known(Kind::graph, hGraph)) return no_such_graph();
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  messages::GraphDot m;
  m.graph = raw(hGraph);
  m.flags = flags;
  replies::GraphDot reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path, "w"), &std::fclose);
  if (out == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::size_t wrote = std::fwrite(reply.text.data(), 1, reply.text.size(), out.get());
  return wrote == reply.text.size() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (object_out == nullptr || destroy == nullptr || !may_count(initialRefcount) ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  *object_out = make_user_object(ptr, destroy, initialRefcount);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return may_count(count) && retain_user_object(object, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return may_count(count) && release_user_object(object, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
  if (!known(Kind::graph, graph)) return no_such_graph();
  if (!may_count(count) || (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  const auto found = store.graphs.find(raw(graph));
  if (found == store.graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  UserObjectReferences& held = found->second.user_objects;
  const bool moves = (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
  return (moves ? held.adopt(object, count) : held.retain(object, count)) ? CUDA_SUCCESS
                                                                          : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  if (!known(Kind::graph, graph)) return no_such_graph();
  if (!may_count(count)) return CUDA_ERROR_INVALID_VALUE;
  {
    GraphStore& store = graph_store();
    const MutexLock lock(store.mutex);
    const auto found = store.graphs.find(raw(graph));
    if (found == store.graphs.end() || !found->second.user_objects.give(object, count))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return release_user_object(object, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpupool::client::api
