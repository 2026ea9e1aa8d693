// Executable graphs: the steps of a graph in an order that can be executed, which launches run (run.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/graph/graph.h"
#include "softgpu/driver/stream/completion.h"

namespace softgpu::driver {

class GraphLaunch;
class Stream;

struct GraphPlan {
  struct Step {
    std::uint64_t source = 0;  // id of the node it came from
    CUgraphNodeType type{};
    NodeParameters parameters;
    std::function<void()> run;
    std::vector<std::uint32_t> after;  // earlier steps of this plan
    std::vector<std::uint32_t> before;
    bool enabled = true;
    std::vector<std::shared_ptr<GraphPlan>> bodies;  // of a child graph or a conditional
  };
  std::vector<Step> steps;
  bool is_chain = true;  // every step follows the one before it: needs one thread
  std::shared_ptr<const UserObjectReferences> user_objects;     // what the steps use
  std::vector<std::shared_ptr<ConditionalValue>> conditionals;  // handles that were made for this graph

  // Throws Error(INVALID_VALUE) for a cycle.
  static std::shared_ptr<GraphPlan> make(const Graph& graph);
  std::shared_ptr<GraphPlan> copy() const;
  Step* find(std::uint64_t source);
  // Gives the handles that have one their value of a launch's beginning, those of bodies too.
  void assign_conditionals() const;
  // Those of bodies too.
  void each_step(const std::function<void(const Step&)>& use) const;
};

// A snapshot of a graph that can be launched many times.
class GraphExec {
 public:
  GraphExec(const Graph& graph, unsigned long long flags);
  ~GraphExec();

  unsigned id() const { return id_; }
  unsigned long long flags() const { return flags_; }
  // Calls `use` with the step made from the node. Throws Error(INVALID_VALUE) if there is none.
  void read(const GraphNode& node, const std::function<void(const GraphPlan::Step&)>& use) const;
  void change(const GraphNode& node, const std::function<void(GraphPlan::Step&)>& use);
  // Gives the child graph of a node the parameters of another of the same shape, else Error(INVALID_VALUE).
  void change_child(const GraphNode& node, const Graph& child);
  // Takes over the parameters of a graph of the same shape.
  CUgraphExecUpdateResult update(const Graph& graph, GraphNode*& culprit);
  // Puts one execution of all steps into the stream, as one piece of work behind the launches before. Throws
  // Error(INVALID_VALUE) when an allocation of the graph has not been freed since the launch before.
  void launch(const std::shared_ptr<Stream>& stream);

 private:
  std::shared_ptr<const GraphLaunch> begin_launch(Context& context) const;

  mutable gpupool::Mutex mutex_;
  const unsigned id_;
  const unsigned long long flags_;
  std::shared_ptr<GraphPlan> plan_
      GUARDED_BY(mutex_);        // shared with launches under way: copied before it is changed
  gpupool::Mutex launch_mutex_;  // held while a launch waits for room in its stream: changes don't
  CompletionRef last_launch_ GUARDED_BY(launch_mutex_);
};

}  // namespace softgpu::driver
