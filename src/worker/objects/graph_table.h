// Which nodes and graphs the client has handles for, and who owns whom.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wire/handle.h"
#include "worker/lease/memory_account.h"
#include "worker/objects/handle_table.h"

namespace gpupool::worker {

/// Nodes of a graph that the program did not build itself are given handles here, of a kind of their own, so
/// that both ends may mint. A handle ends with its node, a node with its graph.
class GraphTable {
 public:
  explicit GraphTable(HandleTable& handles) : handles_(handles) {}

  /// Precondition: the handle is vacant. `owner` is the node that a child graph or a body belongs to, or 0.
  void bind_graph(std::uint64_t value, CUgraph graph, std::uint64_t owner = 0);
  void bind_node(std::uint64_t value, CUgraphNode node, std::uint64_t graph);

  /// The client's handle; 0 for a graph or node it has none for.
  [[nodiscard]] std::uint64_t graph(CUgraph graph) const;
  [[nodiscard]] std::uint64_t node(CUgraphNode node) const;
  /// The client's handle, minted if there is none; 0 when there are too many.
  std::uint64_t node_in(CUgraphNode node, std::uint64_t graph);
  /// The graph that a node's child graph or body is bound as; 0 for none.
  [[nodiscard]] std::uint64_t child_of(std::uint64_t node) const;
  /// Whether the graph is a node's own, which ends with the node.
  [[nodiscard]] bool is_owned(std::uint64_t graph) const;

  /// With all that it owns.
  void forget_graph(std::uint64_t value);
  void forget_node(std::uint64_t value);
  /// A graph that moves into a node.
  void give_to_node(std::uint64_t graph, std::uint64_t node);

  /// Memory that the allocation nodes of an executable graph may use.
  void charge(std::uint64_t exec, MemoryAccount& account, std::uint64_t bytes);
  void release(std::uint64_t exec);

  void clear();

  /// Graphs under construction by a capture that the client has been shown: they end with a failed capture.
  std::set<std::uint64_t> captured;
  std::map<std::uint64_t, CUgraph> captures;  ///< by the stream that began the capture
  /// Events that were last recorded into a capture: a question about one would end it.
  std::set<const void*> captured_events;
  /// The capture of a stream is over and has left no graph: what the client was shown of it, or 0.
  std::uint64_t abandon_capture(std::uint64_t stream);
  bool has_allocations = false;  ///< the session has made an allocation node

 private:
  struct Node {
    CUgraphNode node = nullptr;
    std::uint64_t graph = 0;
    std::set<std::uint64_t> graphs;  // its child graph, or its bodies
  };
  struct Graph {
    CUgraph graph = nullptr;
    std::uint64_t owner = 0;
    std::set<std::uint64_t> nodes;
  };

  HandleTable& handles_;
  std::map<std::uint64_t, Node> nodes_;
  std::map<std::uint64_t, Graph> graphs_;
  std::unordered_map<CUgraphNode, std::uint64_t> node_values_;
  std::unordered_map<CUgraph, std::uint64_t> graph_values_;
  std::vector<wire::Handle> unused_;
  std::uint32_t next_ = 0;
  std::map<std::uint64_t, std::vector<std::pair<MemoryAccount*, std::uint64_t>>> charged_;
};

}  // namespace gpupool::worker
