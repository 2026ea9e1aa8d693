#include "client/objects/graph_store.h"

#include <algorithm>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/images.h"
#include "client/objects/plain_objects.h"
#include "client/process/session_belongings.h"
#include "client/progress/host_functions.h"

namespace gpupool::client {

using wire::Kind;

GraphStore& graph_store() {
  static GraphStore& store = kept_for_session<GraphStore>([](GraphStore& kept) {
    // Outside of the lock: functions of the program end the objects that graphs held.
    std::map<std::uint64_t, GraphShadow> graphs;
    std::map<std::uint64_t, ExecShadow> execs;
    {
      const MutexLock lock(kept.mutex);
      kept.nodes.clear();
      kept.captures.clear();
      graphs.swap(kept.graphs);
      execs.swap(kept.execs);
    }
    for (auto& [handle, graph] : graphs) graph.user_objects.clear();
    for (auto& [handle, exec] : execs) exec.user_objects.clear();
  });
  return store;
}

bool is_graph_node(std::uint64_t value) {
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  return store.nodes.contains(value);
}

CUresult no_such_graph() {
  return runtime().initialised() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
}

std::uint64_t mint_graph(std::uint64_t owner, bool complete, std::uint64_t context) {
  Graph* made = nullptr;
  const std::uint64_t handle = tables().graphs.mint(made);
  if (handle == 0) return 0;
  made->context = context != 0 ? context : current_context();
  // Where it is made without a context, it is on the first worker.
  if (made->context == 0 && runtime().several()) made->context = primary_context(0);
  const MutexLock lock(graph_store().mutex);
  GraphShadow& shadow = graph_store().graphs[handle];
  shadow.owner = owner;
  shadow.complete = complete;
  return handle;
}

std::uint64_t mint_node() {
  PlainObject* object = nullptr;
  return plain_table<Kind::graph_node>().mint(object);
}

std::uint64_t context_for_graph(std::uint64_t graph) {
  const std::uint64_t context = current_context();
  const Graph* const found = tables().graphs.find(graph);
  if (found == nullptr || !runtime().several()) return context;
  return context != 0 && &worker_of_context(context) == &worker_of_context(found->context) ? context
                                                                                           : found->context;
}

void drop_graph(std::uint64_t value) {
  {
    GraphStore& store = graph_store();
    const MutexLock lock(store.mutex);
    store.graphs.erase(value);
  }
  tables().graphs.drop(value);
}

void drop_node(std::uint64_t value) {
  plain_table<Kind::graph_node>().drop(value);
}

void learn_node(GraphStore& store, std::uint64_t node, std::uint64_t graph, CUgraphNodeType type) {
  const auto [place, is_new] = store.nodes.try_emplace(node);
  if (!is_new) return;
  place->second.graph = graph;
  place->second.type = type;
  store.graphs[graph].nodes.push_back(node);
}

CUresult complete_graph(std::uint64_t graph) {
  GraphStore& store = graph_store();
  {
    const MutexLock lock(store.mutex);
    const auto found = store.graphs.find(graph);
    if (found == store.graphs.end()) return no_such_graph();
    if (found->second.complete && !found->second.capturing) return CUDA_SUCCESS;
  }
  // Nodes that a worker found have names of its own making, which another one's may be too.
  if (worker_of_context(context_for_graph(graph)).index != 0) {
    return refuse_mixed("reading a graph that was not built node by node",
                        "it is on the second node or later");
  }
  messages::GraphRead m;
  m.graph = graph;
  replies::GraphRead reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;

  const MutexLock lock(store.mutex);
  const auto found = store.graphs.find(graph);
  if (found == store.graphs.end()) return no_such_graph();
  wire::Reader nodes(reply.nodes), edges(reply.edges);
  std::vector<std::uint64_t> listed;
  while (!nodes.rest().empty()) {
    const auto handle = nodes.get<std::uint64_t>();
    const auto type = static_cast<CUgraphNodeType>(nodes.get<std::int32_t>());
    const Kind kind = wire::Handle::from(handle).kind;
    if (!nodes.ok() || (kind != Kind::graph_node && kind != Kind::found_node)) return CUDA_ERROR_UNKNOWN;
    learn_node(store, handle, graph, type);
    NodeShadow& node = store.nodes[handle];
    if (node.graph != graph) return CUDA_ERROR_UNKNOWN;
    node.after.clear();
    listed.push_back(handle);
  }
  while (!edges.rest().empty()) {
    const auto from = edges.get<std::uint64_t>();
    const auto to = edges.get<std::uint64_t>();
    const auto data = edges.get<CUgraphEdgeData>();
    const auto target = store.nodes.find(to);
    if (!edges.ok() || target == store.nodes.end() || target->second.graph != graph ||
        !store.nodes.contains(from))
      return CUDA_ERROR_UNKNOWN;
    target->second.after.push_back({from, data});
  }
  found->second.nodes = std::move(listed);
  found->second.complete = true;
  return CUDA_SUCCESS;
}

void Ended::give_back() {
  for (const std::uint64_t graph : graphs) {
    tables().graphs.retire(graph);
    tables().graphs.recycle(graph);
  }
  for (const std::uint64_t node : nodes) {
    if (wire::Handle::from(node).kind != Kind::graph_node) continue;
    plain_table<Kind::graph_node>().retire(node);
    plain_table<Kind::graph_node>().recycle(node);
  }
  for (UserObjectReferences& held : user_objects) held.clear();
}

void end_graph(GraphStore& store, std::uint64_t graph, Ended& ended) {
  const auto found = store.graphs.find(graph);
  if (found == store.graphs.end()) return;
  GraphShadow gone = std::move(found->second);
  store.graphs.erase(found);
  for (const std::uint64_t node : gone.nodes) end_node(store, node, ended);
  ended.graphs.push_back(graph);
  ended.user_objects.push_back(std::move(gone.user_objects));
}

void end_node(GraphStore& store, std::uint64_t node, Ended& ended) {
  const auto found = store.nodes.find(node);
  if (found == store.nodes.end()) return;
  NodeShadow gone = std::move(found->second);
  store.nodes.erase(found);
  for (const std::uint64_t graph : gone.graphs) end_graph(store, graph, ended);
  if (const auto owner = store.graphs.find(gone.graph); owner != store.graphs.end()) {
    std::erase(owner->second.nodes, node);
    for (const std::uint64_t other : owner->second.nodes)
      std::erase_if(store.nodes[other].after, [&](const GraphEdge& edge) { return edge.node == node; });
  }
  ended.nodes.push_back(node);
}

bool ClientHandles::to_wire(Kind kind, const void* handle, std::uint64_t& out) {
  out = reinterpret_cast<std::uint64_t>(handle);
  if (kind == Kind::event) {  // launches of the graph record it, which is not followed here
    if (Event* const event = tables().events.find(out)) event->elsewhere.raise(1);
  }
  if (!known(kind, out)) return false;
  if (!runtime().several()) return true;
  const auto worker = worker_of_object(kind, out);
  mixed_ = mixed_ || (worker && *worker != worker_.index);
  if (kind == Kind::context) ForWorker(worker_).context(out);
  return true;
}

bool ClientHandles::from_wire(Kind kind, std::uint64_t value, void*& out) {
  const auto named = wire::Handle::from(value);
  if (kind == Kind::context && named.kind == kind && named.index < primary_contexts) {
    value = primary_context(worker_.first_device + static_cast<int>(named.index));
  }
  out = reinterpret_cast<void*>(value);
  return true;
}

bool ClientHandles::device(int& ordinal, bool to_wire) {
  if (!runtime().several()) return true;
  if (!to_wire) return from_worker(worker_, ordinal);
  mixed_ = mixed_ || !worker_.has_device(ordinal);
  ForWorker(worker_).device(ordinal);
  return true;
}

bool ClientHandles::host_to_wire(CUhostFn function, void* data, std::uint64_t& token) {
  token = host_function_token(function, data);
  return token != 0;
}

bool ClientHandles::host_from_wire(std::uint64_t token, CUhostFn& function, void*& data) {
  function = host_function_of(token, data);
  return function != nullptr;
}

const KernelInfo* ClientHandles::kernel(std::uint64_t function) {
  const Function* const found = find_function(function);
  return found == nullptr ? nullptr : found->info.get();
}

}  // namespace gpupool::client
