#include "softgpu/driver/graph.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "softgpu/driver/error.h"

namespace softgpu::driver {
namespace {

std::atomic<unsigned> next_graph_id{1};

}  // namespace

Graph::Graph() : id_(next_graph_id.fetch_add(1)) {}
Graph::Graph(const UserObjectReferences& references)
    : user_objects(references), id_(next_graph_id.fetch_add(1)) {}
Graph::~Graph() = default;

GraphNode* Graph::add(CUgraphNodeType type, NodeParameters parameters, std::function<void()> run,
                      std::vector<GraphNode*> after) {
  auto node = std::make_unique<GraphNode>(type, std::move(parameters), std::move(run), this);
  node->after = std::move(after);
  node->local_id = next_local_id_++;
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

void Graph::connect(GraphNode* from, GraphNode* to) {
  require(from != to && from->graph == this && to->graph == this);
  require(std::find(to->after.begin(), to->after.end(), from) == to->after.end());
  to->after.push_back(from);
}

void Graph::disconnect(GraphNode* from, GraphNode* to) {
  const auto edge = std::find(to->after.begin(), to->after.end(), from);
  require(edge != to->after.end());
  to->after.erase(edge);
}

void Graph::remove(GraphNode* node) {
  for (const auto& other : nodes_) std::erase(other->after, node);
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

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>(user_objects);
  std::map<const GraphNode*, GraphNode*> twin;
  for (const auto& node : nodes_) {
    GraphNode* made = copy->add(node->type, node->parameters, node->run, {});
    made->clone_of = node.get();
    twin[node.get()] = made;
  }
  for (const auto& node : nodes_) {
    for (const GraphNode* before : node->after) twin[node.get()]->after.push_back(twin[before]);
  }
  return copy;
}

GraphExec::GraphExec(const Graph& graph, unsigned long long flags)
    : id_(next_graph_id.fetch_add(1)), flags_(flags), user_objects_(graph.user_objects) {
  for (const GraphNode* node : graph.ordered())
    steps_.push_back({node, node->type, node->parameters, node->run});
}

GraphExec::Step& GraphExec::step(const GraphNode* node) {
  const std::lock_guard lock(mutex_);
  for (Step& step : steps_) {
    if (step.source == node) return step;
  }
  fail(CUDA_ERROR_INVALID_VALUE);
}

bool GraphExec::update(const Graph& graph) {
  const auto order = graph.ordered();
  const std::lock_guard lock(mutex_);
  if (order.size() != steps_.size()) return false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i]->type != steps_[i].type) return false;
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    steps_[i].parameters = order[i]->parameters;
    steps_[i].run = order[i]->run;
  }
  return true;
}

std::vector<GraphExec::Step> GraphExec::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

}  // namespace softgpu::driver
