#include "softgpu/driver/graph/graph.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"

namespace softgpu::driver {
namespace {

std::atomic<unsigned> next_graph_id{1};
std::atomic<std::uint64_t> next_node_id{1};

struct LiveNodes {
  gpupool::Mutex mutex;
  std::set<const GraphNode*> nodes GUARDED_BY(mutex);
};
LiveNodes& live_nodes() {
  static LiveNodes& all = *new LiveNodes;  // graphs may end at process exit
  return all;
}

void end_embedded(const NodeParameters& parameters) {
  if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&parameters)) {
    registry<Graph>().take_if([&](const Graph& graph) { return &graph == child->get(); });
  } else if (const auto* conditional = std::get_if<Conditional>(&parameters)) {
    for (const auto& body : conditional->bodies) {
      registry<Graph>().take_if([&](const Graph& graph) { return &graph == body.get(); });
    }
  }
}

NodeParameters copy_of(const NodeParameters& parameters) {
  if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&parameters)) {
    auto copy = (*child)->clone();
    embed(copy);
    return copy;
  }
  if (const auto* conditional = std::get_if<Conditional>(&parameters)) {
    Conditional copy = *conditional;
    copy.handles.clear();
    for (auto& body : copy.bodies) {
      body = body->clone();
      copy.handles.push_back(embed(body));
    }
    return copy;
  }
  return parameters;
}

}  // namespace

gpupool::Mutex& graph_mutex() {
  static auto* const made = new gpupool::Mutex;
  return *made;
}

unsigned new_graph_id() {
  return next_graph_id.fetch_add(1);
}

CUgraph embed(const std::shared_ptr<Graph>& graph) {
  graph->embedded = true;
  return registry<Graph>().add<CUgraph>(graph);
}

GraphNode::GraphNode(CUgraphNodeType node_type, NodeParameters node_parameters,
                     std::function<void()> node_run, Graph* owner)
    : type(node_type),
      parameters(std::move(node_parameters)),
      run(std::move(node_run)),
      graph(owner),
      id(next_node_id.fetch_add(1)) {}

Graph::Graph() : id_(new_graph_id()) {}
Graph::Graph(const UserObjectReferences& references) : user_objects(references), id_(new_graph_id()) {}
Graph::~Graph() {
  for (const auto& node : nodes_) end_embedded(node->parameters);
  const gpupool::MutexLock lock(live_nodes().mutex);
  for (const auto& node : nodes_) live_nodes().nodes.erase(node.get());
}

bool Graph::is_live(const GraphNode* node) {
  const gpupool::MutexLock lock(live_nodes().mutex);
  return live_nodes().nodes.contains(node);
}

GraphNode* Graph::add(CUgraphNodeType type, NodeParameters parameters, std::function<void()> run,
                      std::vector<GraphNode*> after, std::vector<CUgraphEdgeData> data) {
  auto node = std::make_unique<GraphNode>(type, std::move(parameters), std::move(run), this);
  data.resize(after.size());
  node->after = std::move(after);
  node->data = std::move(data);
  node->local_id = next_local_id_++;
  nodes_.push_back(std::move(node));
  const gpupool::MutexLock lock(live_nodes().mutex);
  live_nodes().nodes.insert(nodes_.back().get());
  return nodes_.back().get();
}

void Graph::connect(GraphNode* from, GraphNode* to, const CUgraphEdgeData& data) {
  require(from != to && from->graph == this && to->graph == this);
  require(std::find(to->after.begin(), to->after.end(), from) == to->after.end());
  to->after.push_back(from);
  to->data.push_back(data);
}

void Graph::disconnect(GraphNode* from, GraphNode* to) {
  require(from->graph == this && to->graph == this);
  const auto edge = std::find(to->after.begin(), to->after.end(), from);
  require(edge != to->after.end());
  to->data.erase(to->data.begin() + (edge - to->after.begin()));
  to->after.erase(edge);
}

void Graph::remove(GraphNode* node) {
  for (const auto& other : nodes_) {
    if (std::find(other->after.begin(), other->after.end(), node) != other->after.end())
      disconnect(node, other.get());
  }
  end_embedded(node->parameters);
  {
    const gpupool::MutexLock lock(live_nodes().mutex);
    live_nodes().nodes.erase(node);
  }
  std::erase_if(nodes_, [node](const auto& owned) { return owned.get() == node; });
}

std::vector<GraphNode*> Graph::ordered() const {
  std::vector<GraphNode*> order;
  std::map<const GraphNode*, int> state;  // 1: being visited, 2: placed
  // Explicit stack: captured graphs are long chains, and recursion would be as deep as they are.
  for (const auto& root : nodes_) {
    std::vector<std::pair<GraphNode*, std::size_t>> stack;
    if (state[root.get()] == 0) stack.emplace_back(root.get(), 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      state[node] = 1;
      if (next < node->after.size()) {
        GraphNode* before = node->after[next++];
        const int seen = state[before];
        require(seen != 1);
        if (seen == 0) stack.emplace_back(before, 0);
      } else {
        state[node] = 2;
        order.push_back(node);
        stack.pop_back();
      }
    }
  }
  return order;
}

bool Graph::has_memory_nodes() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    const auto* child = std::get_if<std::shared_ptr<Graph>>(&node->parameters);
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (child != nullptr && (*child)->has_memory_nodes());
  });
}

bool Graph::holds(const Graph& other) const {
  const auto inside = [&](const std::shared_ptr<Graph>& graph) { return graph->holds(other); };
  return this == &other || std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
           if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&node->parameters))
             return inside(*child);
           const auto* conditional = std::get_if<Conditional>(&node->parameters);
           return conditional != nullptr &&
                  std::any_of(conditional->bodies.begin(), conditional->bodies.end(), inside);
         });
}

std::shared_ptr<Graph> Graph::clone() const {
  require(!has_memory_nodes(), CUDA_ERROR_NOT_SUPPORTED);
  std::shared_ptr<Graph> copy(new Graph(user_objects));
  copy->conditionals = conditionals;
  std::map<const GraphNode*, GraphNode*> twin;
  for (const auto& node : nodes_) {
    GraphNode* made = copy->add(node->type, copy_of(node->parameters), node->run, {});
    made->clone_of = node->id;
    made->context = node->context;
    made->attributes = node->attributes;
    twin[node.get()] = made;
  }
  for (const auto& node : nodes_) {
    for (const GraphNode* before : node->after) twin[node.get()]->after.push_back(twin[before]);
    twin[node.get()]->data = node->data;
  }
  return copy;
}

}  // namespace softgpu::driver
