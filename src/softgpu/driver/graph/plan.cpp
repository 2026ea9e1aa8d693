#include "softgpu/driver/graph/plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/graph/run.h"
#include "softgpu/driver/stream/stream.h"

namespace softgpu::driver {
namespace {

std::vector<std::shared_ptr<GraphPlan>> bodies_of(const NodeParameters& parameters) {
  std::vector<std::shared_ptr<GraphPlan>> made;
  if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&parameters)) {
    made.push_back(GraphPlan::make(**child));
  } else if (const auto* conditional = std::get_if<Conditional>(&parameters)) {
    for (const auto& body : conditional->bodies) made.push_back(GraphPlan::make(*body));
  }
  return made;
}

bool same_shape(const GraphPlan& a, const GraphPlan& b, CUgraphExecUpdateResult& result,
                std::uint64_t& culprit) {
  result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  culprit = 0;
  if (a.steps.size() != b.steps.size()) return false;
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const GraphPlan::Step &was = a.steps[i], &is = b.steps[i];
    if (was.type != is.type) {
      result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
      culprit = is.source;
      return false;
    }
    if (was.after != is.after || was.bodies.size() != is.bodies.size()) {
      culprit = is.source;
      return false;
    }
    for (std::size_t n = 0; n < was.bodies.size(); ++n) {
      if (!same_shape(*was.bodies[n], *is.bodies[n], result, culprit)) return false;
    }
  }
  result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return true;
}

// A step keeps the node it is known by, and whether it is enabled.
void take_over(GraphPlan& plan, const GraphPlan& from) {
  plan.user_objects = from.user_objects;
  plan.conditionals = from.conditionals;  // the nodes decide by the handles of the new graph now
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    plan.steps[i].parameters = from.steps[i].parameters;
    plan.steps[i].run = from.steps[i].run;
    for (std::size_t n = 0; n < plan.steps[i].bodies.size(); ++n)
      take_over(*plan.steps[i].bodies[n], *from.steps[i].bodies[n]);
  }
}

std::vector<std::shared_ptr<GraphAllocation>> allocations_of(const GraphPlan& plan) {
  std::vector<std::shared_ptr<GraphAllocation>> all;
  plan.each_step([&](const GraphPlan::Step& step) {
    if (const auto* made = std::get_if<MemoryAllocate>(&step.parameters)) all.push_back(made->allocation);
  });
  return all;
}

// The allocations change hands when the launch is made, not when it runs: what is put into streams later is
// ordered behind it.
void account_for_memory(const GraphPlan& plan, bool frees_before) {
  std::vector<std::pair<GraphAllocation*, bool>> done;  // and whether it was taken into use, or its use ended
  const auto take = [&](GraphAllocation& allocation) {
    allocation.take_into_use();
    done.emplace_back(&allocation, true);
  };
  const auto end = [&](GraphAllocation& allocation) {
    allocation.end_use();
    done.emplace_back(&allocation, false);
  };
  try {
    if (frees_before) {
      for (const auto& allocation : allocations_of(plan)) {
        if (allocation->in_use()) end(*allocation);
      }
    }
    plan.each_step([&](const GraphPlan::Step& step) {
      if (const auto* made = std::get_if<MemoryAllocate>(&step.parameters)) take(*made->allocation);
      if (const auto* freed = std::get_if<MemoryFree>(&step.parameters)) end(*freed->allocation);
    });
  } catch (...) {  // a launch that is refused changes nothing
    for (auto change = done.rbegin(); change != done.rend(); ++change) {
      if (change->second) {
        change->first->end_use();
      } else {
        change->first->take_into_use();
      }
    }
    throw;
  }
}

GraphNode* find_node(const Graph& graph, std::uint64_t id) {
  for (const auto& node : graph.nodes()) {
    if (node->id == id) return node.get();
    const auto* child = std::get_if<std::shared_ptr<Graph>>(&node->parameters);
    if (GraphNode* const inside = child != nullptr ? find_node(**child, id) : nullptr) return inside;
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<GraphPlan> GraphPlan::make(const Graph& graph) {
  auto plan = std::make_shared<GraphPlan>();
  plan->user_objects = std::make_shared<const UserObjectReferences>(graph.user_objects);
  plan->conditionals = graph.conditionals;
  std::map<const GraphNode*, std::uint32_t> place;
  for (const GraphNode* node : graph.ordered()) {
    const auto index = static_cast<std::uint32_t>(plan->steps.size());
    place[node] = index;
    Step step;
    step.source = node->id;
    step.type = node->type;
    step.parameters = node->parameters;
    step.run = node->run;
    step.bodies = bodies_of(node->parameters);
    for (const GraphNode* before : node->after) {
      step.after.push_back(place[before]);
      plan->steps[place[before]].before.push_back(index);
    }
    std::sort(step.after.begin(), step.after.end());
    if (index > 0 && (step.after.empty() || step.after.back() != index - 1)) plan->is_chain = false;
    plan->steps.push_back(std::move(step));
  }
  return plan;
}

std::shared_ptr<GraphPlan> GraphPlan::copy() const {
  auto made = std::make_shared<GraphPlan>(*this);
  for (Step& step : made->steps) {
    for (auto& body : step.bodies) body = body->copy();
  }
  return made;
}

GraphPlan::Step* GraphPlan::find(std::uint64_t source) {
  for (Step& step : steps) {
    if (step.source == source) return &step;
    for (const auto& body : step.bodies) {
      if (Step* const inside = body->find(source)) return inside;
    }
  }
  return nullptr;
}

void GraphPlan::assign_conditionals() const {
  for (const auto& conditional : conditionals) {
    if (conditional->assign_at_launch) conditional->value = conditional->at_launch;
  }
  for (const Step& step : steps) {
    for (const auto& body : step.bodies) body->assign_conditionals();
  }
}

void GraphPlan::each_step(const std::function<void(const Step&)>& use) const {
  for (const Step& step : steps) {
    use(step);
    for (const auto& body : step.bodies) body->each_step(use);
  }
}

GraphExec::GraphExec(const Graph& graph, unsigned long long flags)
    : id_(new_graph_id()), flags_(flags), plan_(GraphPlan::make(graph)) {
  const auto allocations = allocations_of(*plan_);
  for (const auto& allocation : allocations) require(!allocation->instantiated);
  for (const auto& allocation : allocations) allocation->instantiated = true;
}

GraphExec::~GraphExec() {
  for (const auto& allocation : allocations_of(*plan_)) allocation->instantiated = false;
}

void GraphExec::read(const GraphNode& node, const std::function<void(const GraphPlan::Step&)>& use) const {
  const gpupool::MutexLock lock(mutex_);
  const GraphPlan::Step* const step = plan_->find(node.id);
  require(step != nullptr);
  use(*step);
}

void GraphExec::change(const GraphNode& node, const std::function<void(GraphPlan::Step&)>& use) {
  const gpupool::MutexLock lock(mutex_);
  require(plan_->find(node.id) != nullptr);
  if (plan_.use_count() > 1) plan_ = plan_->copy();
  use(*plan_->find(node.id));
}

void GraphExec::change_child(const GraphNode& node, const Graph& child) {
  const auto wanted = GraphPlan::make(child);
  change(node, [&](GraphPlan::Step& step) {
    CUgraphExecUpdateResult result{};
    std::uint64_t id = 0;
    require(step.bodies.size() == 1 && same_shape(*step.bodies[0], *wanted, result, id));
    take_over(*step.bodies[0], *wanted);
  });
}

CUgraphExecUpdateResult GraphExec::update(const Graph& graph, GraphNode*& culprit) {
  const auto wanted = GraphPlan::make(graph);
  const gpupool::MutexLock lock(mutex_);
  CUgraphExecUpdateResult result{};
  std::uint64_t id = 0;
  culprit = nullptr;
  if (!same_shape(*plan_, *wanted, result, id)) {
    culprit = find_node(graph, id);
    return result;
  }
  if (!allocations_of(*plan_).empty()) return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  if (plan_.use_count() > 1) plan_ = plan_->copy();
  take_over(*plan_, *wanted);
  return result;
}

void GraphExec::launch(const std::shared_ptr<Stream>& stream) {
  const gpupool::MutexLock order(launch_mutex_);
  last_launch_ =
      stream->submit([launch = begin_launch(stream->context())] { launch->run(); }, {last_launch_});
}

std::shared_ptr<const GraphLaunch> GraphExec::begin_launch(Context& context) const {
  const gpupool::MutexLock lock(mutex_);
  account_for_memory(*plan_, (flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0);
  return std::make_shared<const GraphLaunch>(context, plan_);
}

}  // namespace softgpu::driver
