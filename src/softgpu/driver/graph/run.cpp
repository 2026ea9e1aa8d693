#include "softgpu/driver/graph/run.h"

#include <deque>
#include <functional>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/event.h"

namespace softgpu::driver {
namespace {

// Steps whose dependencies are done wait in `ready_`; as many threads as there are such steps take them,
// because a step may block until another branch has done something.
class BranchingRun {
 public:
  using RunStep = std::function<bool(const GraphPlan::Step&)>;  // false if it failed

  BranchingRun(const GraphPlan& plan, RunStep run_step)
      : plan_(plan),
        run_step_(std::move(run_step)),
        open_(plan.steps.size()),
        unfinished_(plan.steps.size()) {
    for (std::uint32_t n = 0; n < plan.steps.size(); ++n) {
      open_[n] = plan.steps[n].after.size();
      if (open_[n] == 0) ready_.push_back(n);
    }
  }

  // False if a step failed.
  bool run() {
    work();
    // Nobody starts a thread any more: the last step is done, or one has failed and those under way end.
    std::vector<std::thread> threads;
    bool failed = false;
    {
      const gpupool::MutexLock lock(mutex_);
      threads = std::move(threads_);
      failed = failed_;
    }
    for (std::thread& thread : threads) thread.join();
    return !failed;
  }

 private:
  static constexpr std::size_t most_threads = 64;

  [[nodiscard]] bool over() const REQUIRES(mutex_) { return unfinished_ == 0 || failed_; }
  void call_for_help() REQUIRES(mutex_) {
    const std::size_t wanted = ready_.size() > idle_ ? ready_.size() - idle_ : 0;
    for (std::size_t n = 0; n < wanted && threads_.size() < most_threads; ++n) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        return;  // fewer threads do it as well
      }
    }
    changed_.notify_all();
  }

  void work() {
    gpupool::MutexLock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(mutex_, [this]() REQUIRES(mutex_) { return over() || !ready_.empty(); });
      --idle_;
      if (over()) return;
      const std::uint32_t index = ready_.front();
      ready_.pop_front();
      if (!ready_.empty()) call_for_help();
      lock.unlock();
      const bool done = run_step_(plan_.steps[index]);
      lock.lock();
      failed_ |= !done;
      --unfinished_;
      for (const std::uint32_t next : plan_.steps[index].before) {
        if (--open_[next] == 0) ready_.push_back(next);
      }
      if (over()) changed_.notify_all();
    }
  }

  const GraphPlan& plan_;
  const RunStep run_step_;
  gpupool::Mutex mutex_;
  gpupool::CondVar changed_;
  std::vector<std::size_t> open_ GUARDED_BY(mutex_);  // dependencies that are not done
  std::deque<std::uint32_t> ready_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
  std::size_t unfinished_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
  bool failed_ GUARDED_BY(mutex_) = false;
};

}  // namespace

GraphLaunch::GraphLaunch(Context& context, std::shared_ptr<const GraphPlan> plan)
    : context_(context), plan_(std::move(plan)) {
  plan_->each_step([this](const GraphPlan::Step& step) {
    if (const auto* record = std::get_if<EventRecord>(&step.parameters)) {
      auto mark = std::make_shared<Completion>();
      record->event->set_mark(mark);
      marks_[&step] = std::move(mark);
    } else if (const auto* wait = std::get_if<EventWait>(&step.parameters)) {
      if (auto mark = wait->event->mark()) marks_[&step] = std::move(mark);
    }
  });
}

GraphLaunch::~GraphLaunch() {
  record_rest();
}

void GraphLaunch::record_rest() const {
  for (const auto& [step, mark] : marks_) {
    if (std::holds_alternative<EventRecord>(step->parameters)) record(*mark);
  }
}

void GraphLaunch::record(Completion& mark) const {
  const gpupool::MutexLock lock(record_mutex_);
  if (!mark.done()) mark.finish();
}

void GraphLaunch::run() const {
  plan_->assign_conditionals();
  run_plan(*plan_);
}

void GraphLaunch::run_plan(const GraphPlan& plan) const {
  if (plan.is_chain) {
    for (const GraphPlan::Step& step : plan.steps) run_step(step);
  } else if (!BranchingRun(plan, [this](const GraphPlan::Step& step) { return attempt(step); }).run()) {
    fail(context_.fault());
  }
}

// Other branches may wait for the work of a step that failed: for a value, which they give up now that the
// context has the error, or for an event of the graph.
bool GraphLaunch::attempt(const GraphPlan::Step& step) const {
  if (context_.attempt([&] { run_step(step); })) return true;
  record_rest();
  return false;
}

void GraphLaunch::run_step(const GraphPlan::Step& step) const {
  if (!step.enabled) return;
  if (const auto mark = marks_.find(&step); mark != marks_.end()) {
    if (std::holds_alternative<EventRecord>(step.parameters)) {
      record(*mark->second);
    } else {
      mark->second->wait();
    }
  } else if (const auto* conditional = std::get_if<Conditional>(&step.parameters)) {
    run_conditional(step, *conditional);
  } else if (!step.bodies.empty()) {
    run_plan(*step.bodies[0]);
  } else if (step.run) {
    step.run();
  }
}

void GraphLaunch::run_conditional(const GraphPlan::Step& step, const Conditional& conditional) const {
  const auto value = [&] { return conditional.value->value.load(); };
  switch (conditional.type) {
    case CU_GRAPH_COND_TYPE_WHILE:
      while (value() != 0) run_plan(*step.bodies[0]);
      return;
    case CU_GRAPH_COND_TYPE_IF:
      if (value() != 0) {
        run_plan(*step.bodies[0]);
      } else if (step.bodies.size() > 1) {
        run_plan(*step.bodies[1]);
      }
      return;
    default:
      if (const unsigned chosen = value(); chosen < step.bodies.size()) run_plan(*step.bodies[chosen]);
      return;
  }
}

}  // namespace softgpu::driver
