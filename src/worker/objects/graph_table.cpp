#include "worker/objects/graph_table.h"

namespace gpupool::worker {

using wire::Kind;

void GraphTable::bind_graph(std::uint64_t value, CUgraph graph, std::uint64_t owner) {
  handles_.bind(Kind::graph, value, graph);
  graphs_[value] = {graph, owner, {}};
  graph_values_[graph] = value;
  if (const auto found = nodes_.find(owner); found != nodes_.end()) found->second.graphs.insert(value);
}

void GraphTable::bind_node(std::uint64_t value, CUgraphNode node, std::uint64_t graph) {
  handles_.bind(wire::Handle::from(value).kind, value, node);
  nodes_[value] = {node, graph, {}};
  node_values_[node] = value;
  graphs_[graph].nodes.insert(value);
}

std::uint64_t GraphTable::graph(CUgraph graph) const {
  const auto found = graph_values_.find(graph);
  return found == graph_values_.end() ? 0 : found->second;
}

std::uint64_t GraphTable::node(CUgraphNode node) const {
  const auto found = node_values_.find(node);
  return found == node_values_.end() ? 0 : found->second;
}

std::uint64_t GraphTable::node_in(CUgraphNode driver_node, std::uint64_t graph) {
  if (const std::uint64_t known = node(driver_node); known != 0) return known;
  wire::Handle handle{Kind::found_node, 0, next_};
  if (!unused_.empty()) {
    handle = unused_.back();
    unused_.pop_back();
  } else if (next_++ >= wire::max_handles) {
    --next_;
    return 0;
  }
  bind_node(handle.value(), driver_node, graph);
  return handle.value();
}

std::uint64_t GraphTable::child_of(std::uint64_t node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() || found->second.graphs.empty() ? 0 : *found->second.graphs.begin();
}

bool GraphTable::is_owned(std::uint64_t graph) const {
  const auto found = graphs_.find(graph);
  return found != graphs_.end() && found->second.owner != 0;
}

void GraphTable::give_to_node(std::uint64_t graph, std::uint64_t node) {
  const auto moved = graphs_.find(graph);
  const auto owner = nodes_.find(node);
  if (moved == graphs_.end() || owner == nodes_.end()) return;
  moved->second.owner = node;
  owner->second.graphs.insert(graph);
}

void GraphTable::forget_graph(std::uint64_t value) {
  const auto found = graphs_.find(value);
  if (found == graphs_.end()) return;
  for (const std::uint64_t node : std::set(found->second.nodes)) forget_node(node);
  if (const auto owner = nodes_.find(found->second.owner); owner != nodes_.end())
    owner->second.graphs.erase(value);
  graph_values_.erase(found->second.graph);
  handles_.drop(Kind::graph, value);
  captured.erase(value);
  graphs_.erase(found);
}

void GraphTable::forget_node(std::uint64_t value) {
  const auto found = nodes_.find(value);
  if (found == nodes_.end()) return;
  for (const std::uint64_t graph : std::set(found->second.graphs)) forget_graph(graph);
  if (const auto graph = graphs_.find(found->second.graph); graph != graphs_.end())
    graph->second.nodes.erase(value);
  node_values_.erase(found->second.node);
  wire::Handle handle = wire::Handle::from(value);
  handles_.drop(handle.kind, value);
  if (handle.kind == Kind::found_node) {
    ++handle.generation;
    unused_.push_back(handle);
  }
  nodes_.erase(found);
}

std::uint64_t GraphTable::abandon_capture(std::uint64_t stream) {
  const auto found = captures.find(stream);
  if (found == captures.end()) return 0;
  const std::uint64_t shown = graph(found->second);
  captures.erase(found);
  if (!captured.contains(shown)) return 0;
  forget_graph(shown);
  return shown;
}

void GraphTable::charge(std::uint64_t exec, MemoryAccount& account, std::uint64_t bytes) {
  charged_[exec].emplace_back(&account, bytes);
}

void GraphTable::release(std::uint64_t exec) {
  const auto found = charged_.find(exec);
  if (found == charged_.end()) return;
  for (const auto& [account, bytes] : found->second) account->release_beside(bytes);
  charged_.erase(found);
}

void GraphTable::clear() {
  while (!charged_.empty()) release(charged_.begin()->first);
  nodes_.clear();
  graphs_.clear();
  node_values_.clear();
  graph_values_.clear();
  captured.clear();
  captures.clear();
  captured_events.clear();
  unused_.clear();
  next_ = 0;
  has_allocations = false;
}

}  // namespace gpupool::worker
