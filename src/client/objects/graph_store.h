// What the client knows of graphs: their nodes, edges and parameters, so that building one is a row of posts
// and reading one back costs nothing.
//
// A graph that the program did not build node by node (a capture, a clone, a child graph) is read from the
// worker once, at the first question about it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "client/objects/user_objects.h"
#include "client/session/worker_link.h"
#include "shared_api/node_codec.h"

namespace gpupool::client {

struct GraphEdge {
  std::uint64_t node = 0;  ///< the earlier one
  CUgraphEdgeData data{};
};

struct NodeShadow {
  std::uint64_t graph = 0;
  CUgraphNodeType type{};
  std::vector<GraphEdge> after;
  std::vector<std::byte> params;              ///< as shared_api/node_codec.h writes them; empty: not read yet
  std::shared_ptr<graphs::NodeParams> given;  ///< what the program was given pointers into
  /// The same, before they were last set: programs set what they got, and then the same once more.
  std::shared_ptr<graphs::NodeParams> given_before;
  std::vector<std::uint64_t> graphs;  ///< its child graph, or its bodies
};

struct GraphShadow {
  std::uint64_t owner = 0;  ///< the node that it is part of
  std::vector<std::uint64_t> nodes;
  bool complete = true;    ///< nodes and edges are known
  bool capturing = false;  ///< ... and change with every captured call
  UserObjectReferences user_objects;
};

struct ExecShadow {
  std::uint64_t graph = 0;  ///< that it was made from; may be gone
  bool launched = false;
  int host_nodes = 0;
  UserObjectReferences user_objects;
};

struct CaptureShadow {
  std::vector<CUgraphNode> nodes;  ///< what the program was given pointers to
  std::vector<CUgraphEdgeData> edges;
};

/// Everything is guarded by `mutex`, which is not held while waiting for the worker.
struct GraphStore {
  Mutex mutex;
  std::map<std::uint64_t, NodeShadow> nodes GUARDED_BY(mutex);
  std::map<std::uint64_t, GraphShadow> graphs GUARDED_BY(mutex);
  std::map<std::uint64_t, ExecShadow> execs GUARDED_BY(mutex);
  std::map<std::uint64_t, CaptureShadow> captures GUARDED_BY(mutex);  ///< by stream
};
GraphStore& graph_store();

bool is_graph_node(std::uint64_t value);
/// The error for a graph or node that there is not.
CUresult no_such_graph();

/// A new handle for a graph with an empty shadow; 0 when there are too many. `context`: that it is made in;
/// 0: the current one.
std::uint64_t mint_graph(std::uint64_t owner = 0, bool complete = true, std::uint64_t context = 0);
std::uint64_t mint_node();
/// The context that something about a graph is said in: the current one, where it is on the graph's node.
std::uint64_t context_for_graph(std::uint64_t graph);
/// Handles that the worker has not heard of.
void drop_graph(std::uint64_t value);
void drop_node(std::uint64_t value);

/// Reads the nodes and edges of a graph if they are not known.
CUresult complete_graph(std::uint64_t graph);
/// Sees to it that a node which the worker named is known.
void learn_node(GraphStore& store, std::uint64_t node, std::uint64_t graph, CUgraphNodeType type)
    REQUIRES(store.mutex);

/// Takes a graph, or a node, with all it owns out of the store. The handles may be used again only after
/// give_back(), behind the message that ends the objects. The mutex is held.
struct Ended {
  std::vector<std::uint64_t> graphs, nodes;
  std::vector<UserObjectReferences> user_objects;

  /// Without the mutex: the program's functions may run.
  void give_back();
};
void end_graph(GraphStore& store, std::uint64_t graph, Ended& ended) REQUIRES(store.mutex);
void end_node(GraphStore& store, std::uint64_t node, Ended& ended) REQUIRES(store.mutex);

/// Handles in parameters are the client's already: this checks that they are alive, and on the graph's node.
class ClientHandles final : public graphs::HandleMap {
 public:
  explicit ClientHandles(const WorkerLink& worker) : worker_(worker) {}
  /// Whether the parameters name something of another node.
  [[nodiscard]] bool mixed() const { return mixed_; }

  bool to_wire(wire::Kind kind, const void* handle, std::uint64_t& out) override;
  bool from_wire(wire::Kind kind, std::uint64_t value, void*& out) override;
  bool device(int& ordinal, bool to_wire) override;
  bool host_to_wire(CUhostFn function, void* data, std::uint64_t& token) override;
  bool host_from_wire(std::uint64_t token, CUhostFn& function, void*& data) override;
  const KernelInfo* kernel(std::uint64_t function) override;

 private:
  const WorkerLink& worker_;
  bool mixed_ = false;
};

}  // namespace gpupool::client
