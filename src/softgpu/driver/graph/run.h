// One launch of an executable graph.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/graph/conditional.h"
#include "softgpu/driver/graph/plan.h"
#include "softgpu/driver/graph/user_object.h"
#include "softgpu/driver/stream/completion.h"

namespace softgpu::driver {

// Exists until the launch is over, even if its stream had no use for it any more.
class GraphLaunch {
 public:
  // Into a stream of the context. From now on the events of its nodes stand for this launch.
  GraphLaunch(Context& context, std::shared_ptr<const GraphPlan> plan);
  // Nobody waits any longer for events that it did not come to record.
  ~GraphLaunch();
  GraphLaunch(const GraphLaunch&) = delete;
  GraphLaunch& operator=(const GraphLaunch&) = delete;

  // Executes the steps: each after those it depends on, independent ones at the same time. Throws what a step
  // threw, or the context's sticky error after a branch that failed.
  void run() const;

 private:
  void run_plan(const GraphPlan& plan) const;
  bool attempt(const GraphPlan::Step& step) const;
  void run_step(const GraphPlan::Step& step) const;
  void run_conditional(const GraphPlan::Step& step, const Conditional& conditional) const;

  void record(Completion& mark) const;
  void record_rest() const;

  Context& context_;
  const std::shared_ptr<const GraphPlan> plan_;
  std::map<const GraphPlan::Step*, CompletionRef> marks_;  // that its steps record, or wait for
  mutable gpupool::Mutex record_mutex_;                    // a mark is finished once
};

}  // namespace softgpu::driver
