// One launch of an executable graph.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "softgpu/driver/graph/conditional.h"
#include "softgpu/driver/graph/plan.h"
#include "softgpu/driver/graph/user_object.h"
#include "softgpu/driver/stream/completion.h"

namespace softgpu::driver {

// Exists until the launch is over, even if its stream had no use for it any more.
class GraphLaunch {
 public:
  using Conditionals = std::vector<std::shared_ptr<ConditionalValue>>;

  // From now on the events of its nodes stand for this launch.
  GraphLaunch(std::shared_ptr<const GraphPlan> plan, Conditionals conditionals,
              std::shared_ptr<const UserObjectReferences> user_objects);
  // Nobody waits any longer for events that it did not come to record.
  ~GraphLaunch();
  GraphLaunch(const GraphLaunch&) = delete;
  GraphLaunch& operator=(const GraphLaunch&) = delete;

  // Executes the steps: each after those it depends on, independent ones at the same time. Throws what the
  // first failing step threw.
  void run() const;

 private:
  void run_plan(const GraphPlan& plan) const;
  void run_step(const GraphPlan::Step& step) const;
  void run_conditional(const GraphPlan::Step& step, const Conditional& conditional) const;

  const std::shared_ptr<const GraphPlan> plan_;
  const Conditionals conditionals_;
  const std::shared_ptr<const UserObjectReferences> user_objects_;  // what the steps use
  std::map<const GraphPlan::Step*, CompletionRef> marks_;           // that its steps record, or wait for
};

}  // namespace softgpu::driver
