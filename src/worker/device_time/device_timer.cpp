#include "worker/device_time/device_timer.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "worker/device_time/timelines.h"
#include "worker/driver/sticky_error.h"

namespace gpupool::worker {
namespace {

constexpr int relaxed_capture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr std::int64_t max_burst_ns =
    20'000'000;  // split long bursts, so that figures move while work goes on
constexpr std::int64_t long_burst_ns =
    20'000'000;  // a younger burst will soon be measured: nobody asks the driver whether it runs
// Unresolved bursts of a stream, at most; and where one more would join work and functions of the client's.
constexpr std::size_t max_unresolved = 16, max_apart = 64;

using Begin = std::pair<BusyPeriod*, double>;
using Place = std::pair<void*, void*>;  // a context, and a stream of it

/// What the timer asks has nothing to do with a capture that is under way somewhere: a driver would refuse
/// the questions otherwise, and declare the capture invalid.
class Questions {
 public:
  explicit Questions(const EventFunctions& functions)
      : exchange_(functions.exchange_capture_mode),
        exchanged_(exchange_ != nullptr && exchange_(&mode_) == driver_success) {}
  ~Questions() {
    if (exchanged_) exchange_(&mode_);
  }
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;

 private:
  int mode_ = relaxed_capture;
  int (*exchange_)(int* mode);
  bool exchanged_;
};

void earliest(std::vector<Begin>& begins, BusyPeriod* period, double start_ms) {
  const auto found = std::ranges::find(begins, period, &Begin::first);
  if (found == begins.end()) {
    begins.emplace_back(period, start_ms);
  } else {
    found->second = std::min(found->second, start_ms);
  }
}

}  // namespace

struct DeviceTimer::State {
  State(EventFunctions driver_functions, Usage& session_usage, Clock own_clock)
      : functions(driver_functions),
        usage(session_usage),
        clock(std::move(own_clock)),
        timelines(functions) {}

  EventFunctions functions;
  Usage& usage;
  Clock clock;
  Timelines timelines;
  std::vector<Burst> open;
  std::deque<Burst> closed;
  std::uint64_t settled_ns = 0;
  std::uint64_t told_ns = 0;  // of what this timer saw: a session that moved here has used more elsewhere
  std::uint64_t piece = 0;    // that is open
  RunningBurst running;
  DeviceFailure failure;

  bool capturing(void* stream) const {
    int status = 0;
    return functions.stream_is_capturing != nullptr &&
           (functions.stream_is_capturing(stream, &status) != driver_success || status != 0);
  }

  std::vector<Burst>::iterator find_open(const void* context, const void* stream) {
    return std::ranges::find_if(open, [&](const Burst& burst) { return burst.is_in(context, stream); });
  }

  /// The timeline of some burst of the context that has not ended; null: there is none.
  [[nodiscard]] std::shared_ptr<Timeline> unfinished(const void* context) const {
    const auto is_its = [&](const Burst& burst) { return burst.timeline->context == context; };
    if (const auto burst = std::ranges::find_if(closed, is_its); burst != closed.end())
      return burst->timeline;
    const auto burst = std::ranges::find_if(open, is_its);
    return burst == open.end() ? nullptr : burst->timeline;
  }

  void begin(void* context, void* stream, DeviceMeter* meter, bool of_client) {
    if (capturing(stream) || reopen(context, stream, of_client)) return;
    void* start = timelines.take_event(context);
    if (start == nullptr) return;
    if (functions.event_record(start, stream) != driver_success) {
      timelines.give_event(context, start);
      return;
    }
    const std::int64_t now = clock();
    auto timeline = timelines.enter(context, start, meter, now, unfinished(context));
    open.push_back({std::move(timeline), stream, start, nullptr, now, piece, of_client});
    usage.in_flight.store(true, std::memory_order_relaxed);
  }

  /// A stream that is far behind has its last burst go on: one that never completes must not cost memory
  /// without end. What it is charged is the same, for the device does one burst of a stream after the other.
  bool reopen(void* context, void* stream, bool of_client) {
    std::size_t count = 0;
    auto last = closed.end();
    for (auto burst = closed.begin(); burst != closed.end(); ++burst) {
      if (burst->stream_gone || !burst->is_in(context, stream)) continue;
      ++count;
      last = burst;
    }
    if (count < max_unresolved || (last->of_client != of_client && count < max_apart)) return false;
    timelines.give_event(context, std::exchange(last->end, nullptr));
    last->cut_ns = clock();
    last->of_client = last->of_client && of_client;
    open.push_back(std::move(*last));
    closed.erase(last);
    return true;
  }

  void end(Burst burst) {
    void* context = burst.timeline->context;
    if (functions.context_push(context) != driver_success) return timelines.drop(burst);
    burst.end = timelines.take_event(context);
    if (burst.end != nullptr && !capturing(burst.stream) &&
        functions.event_record(burst.end, burst.stream) == driver_success) {
      closed.push_back(std::move(burst));
    } else {
      // The device may have failed before the end could be marked: then every question is answered with that
      // error.
      note_failure(functions.event_query(burst.start), burst);
      charge_until_now(burst);
      timelines.drop(burst);
    }
    functions.context_pop(&context);
  }

  void end_open(std::vector<Burst>::iterator burst) {
    Burst finished = std::move(*burst);
    open.erase(burst);
    end(std::move(finished));
  }

  void note_failure(int result, const Burst& burst) {
    if (is_sticky(result) && failure.error == 0) failure = {result, burst.kernel};
  }

  void charge(BusyPeriod& period, double ms) {
    period.uncharged_ms += ms;
    const auto whole_ns = static_cast<std::uint64_t>(period.uncharged_ms * 1e6);
    period.uncharged_ms -= static_cast<double>(whole_ns) / 1e6;
    settled_ns += whole_ns;
    if (period.meter != nullptr) period.meter->settled_ns += whole_ns;
  }

  /// What is known of a burst whose end will never be measured.
  void charge_until_now(Burst& burst) {
    if (burst.of_client || !timelines.locate(burst)) return;
    BusyPeriod& period = *burst.timeline->period;
    charge(period, period.busy.add(*burst.start_ms, period.at(clock())));
  }

  /// True when the burst needs no more attention.
  bool settle(Burst& burst) {
    const int ready = functions.event_query(burst.end);
    if (ready == driver_not_ready) return false;
    if (ready == driver_success) {
      // Placed in any case: others are measured from it.
      const auto interval = timelines.interval(burst);
      BusyPeriod& period = *burst.timeline->period;
      if (interval && !burst.of_client) charge(period, period.busy.add(interval->start_ms, interval->end_ms));
    } else {
      note_failure(ready, burst);
      charge_until_now(burst);
    }
    timelines.drop(burst);
    return true;
  }

  /// Bounds what is remembered of each period. All that is complete has been charged; so between two pieces
  /// there was a burst that still runs, or there was nothing.
  void join_pieces() {
    std::vector<Begin> begins;
    const auto look_at = [&](Burst& burst) {
      BusyPeriod* const period = burst.timeline->period.get();
      if (!burst.of_client && period->busy.many() && timelines.locate(burst))
        earliest(begins, period, *burst.start_ms);
    };
    std::ranges::for_each(closed, look_at);
    std::ranges::for_each(open, look_at);
    for (const auto& period : timelines.periods()) {
      if (!period->busy.many()) continue;
      const auto found = std::ranges::find(begins, period.get(), &Begin::first);
      charge(*period, period->busy.join(found == begins.end() ? period->at(clock()) : found->second));
    }
  }

  /// Finds out what runs, and how much longer that makes the busy periods than what is measured.
  void look_at_running() {
    running = {};
    const std::int64_t now = clock();
    std::vector<Place> seen;  // the rest of each waits
    std::vector<Begin> begins;
    const auto look_at = [&](Burst& burst) {
      Timeline& timeline = *burst.timeline;
      const Place place{timeline.context, burst.stream};
      if (now - burst.opened_ns < long_burst_ns || std::ranges::find(seen, place) != seen.end()) return;
      seen.push_back(place);
      if (burst.of_client || !timelines.locate(burst)) return;
      BusyPeriod* const period = timeline.period.get();
      earliest(begins, period, *burst.start_ms);
      const auto ns = static_cast<std::int64_t>((period->at(now) - *burst.start_ms) * 1e6);
      if (!running.running || ns > running.ns) running = {true, std::max<std::int64_t>(ns, 0), burst.kernel};
    };
    for (Burst& burst : closed) look_at(burst);
    for (Burst& burst : open) look_at(burst);
    tell(begins, now);
  }

  void tell(const std::vector<Begin>& begins, std::int64_t now) {
    std::uint64_t all = settled_ns;
    for (const auto& [period, begin] : begins) {
      const auto more =
          static_cast<std::uint64_t>(std::max(0.0, period->busy.missing(begin, period->at(now)) * 1e6));
      all += more;
      if (period->meter != nullptr)
        period->meter->told_ns = std::max(period->meter->told_ns, period->meter->settled_ns + more);
    }
    if (all <= told_ns) return;
    usage.device_ns.fetch_add(all - told_ns, std::memory_order_relaxed);
    told_ns = all;
  }

  /// Whether a device has come to the burst, or cannot tell.
  [[nodiscard]] bool begun(const Burst& burst) const {
    void* context = burst.timeline->context;
    if (functions.context_push(context) != driver_success) return true;
    const bool waits = functions.event_query(burst.start) == driver_not_ready;
    functions.context_pop(&context);
    return !waits;
  }

  void settle_all() {
    const Questions questions(functions);
    settle_closed();
    join_pieces();
    look_at_running();
  }

  void settle_closed() {
    std::vector<Place> unfinished;  // the rest of each waits
    for (auto burst = closed.begin(); burst != closed.end();) {
      void* context = burst->timeline->context;
      const Place place{context, burst->stream};
      if (!burst->stream_gone && std::ranges::find(unfinished, place) != unfinished.end()) {
        ++burst;
        continue;
      }
      if (functions.context_push(context) != driver_success) {
        charge_until_now(*burst);
        timelines.drop(*burst);
        burst = closed.erase(burst);
        continue;
      }
      const bool done = settle(*burst);
      functions.context_pop(&context);
      if (!done && !burst->stream_gone) unfinished.push_back(place);
      burst = done ? closed.erase(burst) : burst + 1;
    }
    if (open.empty() && closed.empty()) usage.in_flight.store(false, std::memory_order_relaxed);
  }
};

DeviceTimer::DeviceTimer(EventFunctions functions, Usage& usage, Clock clock)
    : state_(std::make_unique<State>(functions, usage, std::move(clock))) {}

DeviceTimer::~DeviceTimer() = default;

void DeviceTimer::work(void* context, void* stream, DeviceMeter* meter, std::string_view kernel) {
  const std::lock_guard lock(mutex_);
  auto burst = state_->find_open(context, stream);
  if (burst != state_->open.end() && (burst->of_client || state_->clock() - burst->cut_ns >= max_burst_ns)) {
    state_->end_open(burst);
    burst = state_->open.end();
  }
  if (burst == state_->open.end()) {
    state_->begin(context, stream, meter, false);
    burst = state_->find_open(context, stream);
  }
  if (burst == state_->open.end() || kernel.empty() || burst->kernel_text == kernel.data()) return;
  burst->kernel_text = kernel.data();
  burst->kernel = kernel;
}

void DeviceTimer::client_function(void* context, void* stream, DeviceMeter* meter) {
  const std::lock_guard lock(mutex_);
  for (auto& burst : std::exchange(state_->open, {})) state_->end(std::move(burst));
  state_->begin(context, stream, meter, true);
}

void DeviceTimer::part(void* context, void* stream) {
  const std::lock_guard lock(mutex_);
  if (const auto burst = state_->find_open(context, stream); burst != state_->open.end())
    state_->end_open(burst);
}

bool DeviceTimer::under_way() {
  const std::lock_guard lock(mutex_);
  state_->settle_all();
  const Questions questions(state_->functions);
  const auto is_it = [&](const Burst& burst) { return !burst.of_client && state_->begun(burst); };
  return std::ranges::any_of(state_->closed, is_it) || std::ranges::any_of(state_->open, is_it);
}

std::uint64_t DeviceTimer::pause() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t piece = state_->piece++;
  if (state_->open.empty() && state_->closed.empty()) return piece;
  for (auto& burst : std::exchange(state_->open, {})) state_->end(std::move(burst));
  state_->settle_all();
  return piece;
}

DeviceProgress DeviceTimer::look(DeviceMeter& meter) {
  const std::lock_guard lock(mutex_);
  if (!state_->closed.empty()) state_->settle_all();
  meter.told_ns = std::max(meter.told_ns, meter.settled_ns);
  DeviceProgress progress{meter.told_ns, state_->piece, false};
  const auto count = [&](const Burst& burst) {
    if (burst.timeline->period->meter != &meter) return;
    progress.in_flight = true;
    progress.first_unfinished = std::min(progress.first_unfinished, burst.piece);
  };
  std::for_each(state_->open.begin(), state_->open.end(), count);
  std::for_each(state_->closed.begin(), state_->closed.end(), count);
  return progress;
}

void DeviceTimer::resolve() {
  const std::lock_guard lock(mutex_);
  state_->settle_all();
}

RunningBurst DeviceTimer::running() const {
  const std::lock_guard lock(mutex_);
  return state_->running;
}

DeviceFailure DeviceTimer::failure() const {
  const std::lock_guard lock(mutex_);
  return state_->failure;
}

void DeviceTimer::forget(void* context, void* stream, bool whole_context) {
  const std::lock_guard lock(mutex_);
  // Bursts that are complete by now are still charged; of the rest only the open bursts of a living context
  // can be closed.
  state_->settle_all();
  for (std::size_t i = state_->open.size(); i-- > 0;) {
    Burst& burst = state_->open[i];
    if (whole_context ? burst.timeline->context != context : !burst.is_in(context, stream)) continue;
    Burst taken = std::move(burst);
    state_->open.erase(state_->open.begin() + static_cast<std::ptrdiff_t>(i));
    if (whole_context) {
      state_->charge_until_now(taken);
      state_->timelines.drop(taken);
    } else {
      state_->end(std::move(taken));
    }
  }
  if (!whole_context) {
    for (Burst& burst : state_->closed) burst.stream_gone |= burst.is_in(context, stream);
    return;
  }
  std::erase_if(state_->closed, [&](Burst& burst) {
    if (burst.timeline->context != context) return false;
    state_->charge_until_now(burst);
    state_->timelines.drop(burst);
    return true;
  });
  state_->timelines.forget_events(context);
  state_->look_at_running();
}

}  // namespace gpupool::worker
