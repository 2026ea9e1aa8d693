#include "worker/device_time/device_work.h"

#include <utility>

#include "worker/driver/kernel_name.h"

namespace gpupool::worker {
namespace {

/// A client that sends calls without work for so long does not want the device.
constexpr std::int64_t lull_ns = 1'000'000;

}  // namespace

DeviceWork::DeviceWork(const Driver& driver, WorkerState& state, Residence& residence,
                       std::function<bool()> client_runs)
    : api_(driver.api),
      state_(state),
      residence_(residence),
      client_runs_(std::move(client_runs)),
      software_(driver.library()),
      busy_(driver.api) {
  EventFunctions events;
  if (!EventFunctions::load(driver.library(), events)) return;
  timer_.emplace(events, state_.usage, [this] { return software_.device_ns(); });
  turns_.emplace(
      state_, *timer_, residence_, software_,
      enforcer::SessionFacts{
          [this] { return state_.gate.admits(call_epoch_.load(), boottime_ns()) == Admission::ok; },
          [this] { return waits_for_client(); }, [this] { return stopped(); }});
}

template <class Begin>
CUresult DeviceWork::takes_turn(CUstream stream, bool captured, std::uint64_t key, Begin begin) {
  busy_.work(current_, stream);
  if (!timer_ || captured) return CUDA_SUCCESS;
  // Calls that free, and calls that make a session anew, cannot be put off and are no load: they go without a
  // turn.
  const bool is_load = epoch_of_call() != 0;
  // What has no context has no turn and is not measured: load does not run then, as CUDA has it.
  if (current_ == nullptr) return is_load ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  if (is_load && !turns_->before_work(ordinal_, key)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  begin(turns_->meter(ordinal_));
  return CUDA_SUCCESS;
}

CUresult DeviceWork::submits(CUstream stream, bool captured, std::uint64_t kernels, std::uint64_t key,
                             std::string_view kernel) {
  const auto begin = [&](DeviceMeter* meter) { timer_->work(current_, stream, meter, kernel); };
  const CUresult result = takes_turn(stream, captured, key, begin);
  if (result == CUDA_SUCCESS) state_.usage.submitted(boottime_ns(), kernels);
  return result;
}

CUresult DeviceWork::submits_function(CUstream stream, bool captured) {
  const auto begin = [&](DeviceMeter* meter) { timer_->client_function(current_, stream, meter); };
  const CUresult result = takes_turn(stream, captured, 0, begin);
  if (result == CUDA_SUCCESS) state_.usage.submitted(boottime_ns(), 0);
  return result;
}

void DeviceWork::waits() {
  const Residence::Visit visit(&residence_);
  if (timer_ && visit) turns_->paused(timer_->pause());
}

bool DeviceWork::keeps_others_waiting() const {
  return turns_ && turns_->contended() &&
         boottime_ns() - state_.usage.last_submit_ns.load(std::memory_order_relaxed) > lull_ns;
}

void DeviceWork::forgets(CUstream stream) {
  busy_.leave(current_, stream);
  if (timer_) timer_->forget(current_, stream, false);
}

void DeviceWork::forgets_context(CUcontext context) {
  busy_.forget_context(context);
  if (timer_) timer_->forget(context, nullptr, true);
}

bool DeviceWork::idle(CUcontext context) {
  return in_context(context, [&] { return busy_.idle(context); });
}

bool DeviceWork::listed_idle(CUcontext context) {
  return in_context(context, [&] { return busy_.listed_idle(context); });
}

std::function<CUresult()> DeviceWork::wait_for(const std::vector<CUcontext>& contexts) {
  std::vector<std::pair<CUcontext, BusyStreams::Awaited>> all;
  for (const CUcontext context : contexts) all.emplace_back(context, busy_.awaits(context));
  return [&api = api_, all = std::move(all)] {
    CUresult first = CUDA_SUCCESS;
    for (const auto& [context, awaited] : all) {
      api.cuCtxSetCurrent_(context);
      const CUresult result = api.cuCtxSynchronize_();
      if (result == CUDA_SUCCESS) awaited.ended();
      if (first == CUDA_SUCCESS) first = result;
    }
    return first;
  };
}

void DeviceWork::charge() {
  const Residence::Visit visit(&residence_);
  if (!timer_ || !visit) return;
  resolve();
  turns_->tidy();
}

void DeviceWork::resolve() {
  timer_->resolve();
  if (const DeviceFailure failure = timer_->failure(); failure.error != 0)
    state_.work.failed({failure.error, short_kernel_name(failure.kernel)});
}

bool DeviceWork::is_complete() {
  if (timer_) timer_->resolve();
  return !state_.usage.in_flight.load();
}

bool DeviceWork::waits_for_client() {
  if (!client_runs_()) return false;
  const Residence::Visit visit(&residence_);
  return !(timer_ && visit && timer_->under_way());
}

bool DeviceWork::computes() {
  const Residence::Visit visit(&residence_);
  return visit && !stopped() && !is_complete() && !waits_for_client();
}

bool DeviceWork::stop() {
  if (!software_.stop(StopReason::no_lease)) return false;
  look();
  return true;
}

void DeviceWork::go_on() {
  if (!stopped()) return;
  software_.go_on(StopReason::no_lease);
  look();
}

void DeviceWork::look() {
  const Residence::Visit visit(&residence_);
  if (!timer_ || !visit) return;
  resolve();
  RunningBurst burst = timer_->running();
  // A burst may have several kernels: a driver that knows which one runs is right.
  if (const auto kernel = software_.running()) burst = {true, kernel->ns, kernel->name};
  const std::int64_t now = boottime_ns();
  WorkView view;
  if (burst.running) {
    const bool leased = state_.gate.view(now).state == LeaseState::attached;
    view.state = stopped() ? WorkState::stopped : leased ? WorkState::running : WorkState::draining;
    view.kernel = short_kernel_name(burst.kernel);
    view.since_ns = now - burst.ns;
  }
  state_.work.tell(std::move(view));
}

}  // namespace gpupool::worker
