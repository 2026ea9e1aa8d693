#include "worker/device_time/device_timer.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "worker/device_time/interval_union.h"
#include "worker/driver/sticky_error.h"

namespace gpupool::worker {
namespace {

constexpr int driver_success = 0;
constexpr int driver_not_ready = 600;
constexpr unsigned event_default = 0;  // timing on
constexpr int relaxed_capture = 2;     // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr std::int64_t max_burst_ns =
    20'000'000;  // split long bursts, so that figures move while work goes on
constexpr std::int64_t max_timeline_ns =
    10'000'000'000;  // elapsed times are floats in ms: past 10 s they lose microseconds
constexpr std::int64_t long_burst_ns =
    20'000'000;  // a younger burst will soon be measured: nobody asks the driver whether it runs
constexpr std::size_t max_unresolved = 16;  // of a stream

}  // namespace

/// A busy period of one context: times are in milliseconds from its beginning.
struct BusyPeriod {
  std::int64_t began_ns = 0;  // by the timer's clock, as far as is known
  IntervalUnion busy;
  DeviceMeter* meter = nullptr;
  double uncharged_ms = 0;  // below a nanosecond
};

struct DeviceTimer::State {
  /// What is measured from one event on.
  struct Timeline {
    void* context;
    void* base;
    std::int64_t opened_ns;
    std::shared_ptr<BusyPeriod> period;
    std::shared_ptr<Timeline> before;  // in whose time the base is yet to be placed
    double offset_ms = 0;              // of the base, from the beginning of the period
    std::size_t bursts = 0;            // open or unresolved
    bool retired = false;              // no new bursts; base is freed with the last one
  };
  struct Burst {
    std::shared_ptr<Timeline> timeline;
    void* stream;
    void* start;
    void* end;
    std::int64_t opened_ns;
    std::uint64_t piece;
    std::int64_t cut_ns = opened_ns;                // when it was opened, the last time
    bool stream_gone = false;                       // another may have the handle by now
    std::optional<double> start_ms = std::nullopt;  // in the period, once the device has come to it
    const char* kernel_text = nullptr;              // of the last launch, only to compare
    std::string kernel = {};
  };
  struct FreeEvent {
    void* context;
    void* event;
  };

  State(EventFunctions driver_functions, Usage& session_usage, Clock own_clock)
      : functions(driver_functions), usage(session_usage), clock(std::move(own_clock)) {}

  EventFunctions functions;
  Usage& usage;
  Clock clock;
  std::vector<Burst> open;
  std::deque<Burst> closed;
  std::vector<std::shared_ptr<Timeline>> timelines;  // the current one of each context
  std::vector<FreeEvent> free_events;
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

  void* take_event(void* context) {
    for (std::size_t i = free_events.size(); i-- > 0;) {
      if (free_events[i].context != context) continue;
      void* event = free_events[i].event;
      free_events[i] = free_events.back();
      free_events.pop_back();
      return event;
    }
    void* event = nullptr;
    return functions.event_create(&event, event_default) == driver_success ? event : nullptr;
  }

  void give_event(void* context, void* event) {
    if (event != nullptr) free_events.push_back({context, event});
  }

  void drop(Burst& burst) {
    Timeline& timeline = *burst.timeline;
    if (burst.start != timeline.base) give_event(timeline.context, burst.start);
    give_event(timeline.context, burst.end);
    leave(timeline);
    std::erase_if(timelines, [](const auto& kept) { return kept->retired; });
  }

  /// One that is measured from the base needs it no more.
  void leave(Timeline& timeline) {
    if (--timeline.bursts > 0) return;
    // Nothing refers to the base any more: the next burst opens a new timeline, so the floats stay small.
    give_event(timeline.context, timeline.base);
    timeline.base = nullptr;
    timeline.retired = true;
    if (timeline.before) leave(*std::exchange(timeline.before, nullptr));
  }

  std::shared_ptr<Timeline> timeline_for(void* context, void* start, DeviceMeter* meter, std::int64_t now) {
    std::shared_ptr<Timeline> before;
    const auto found = std::find_if(timelines.begin(), timelines.end(),
                                    [&](const auto& t) { return t->context == context; });
    if (found != timelines.end()) {
      if (now - (*found)->opened_ns <= max_timeline_ns) return *found;
      before = *found;
      timelines.erase(found);
    } else {
      // All bursts of the last timeline have ended, and one of an earlier timeline goes on: what comes now
      // may overlap with it.
      const auto of_context = [&](const Burst& burst) { return burst.timeline->context == context; };
      if (const auto burst = std::ranges::find_if(closed, of_context); burst != closed.end()) {
        before = burst->timeline;
      } else if (const auto other = std::ranges::find_if(open, of_context); other != open.end()) {
        before = other->timeline;
      }
    }
    if (before) ++before->bursts;
    auto period = before ? before->period : std::make_shared<BusyPeriod>(BusyPeriod{now, {}, meter});
    timelines.push_back(std::make_shared<Timeline>(Timeline{context, start, now, period, before}));
    return timelines.back();
  }

  void begin(void* context, void* stream, DeviceMeter* meter) {
    if (capturing(stream) || reopen(context, stream)) return;
    void* start = take_event(context);
    if (start == nullptr) return;
    if (functions.event_record(start, stream) != driver_success) {
      give_event(context, start);
      return;
    }
    const std::int64_t now = clock();
    auto timeline = timeline_for(context, start, meter, now);
    ++timeline->bursts;
    open.push_back({std::move(timeline), stream, start, nullptr, now, piece});
    usage.in_flight.store(true, std::memory_order_relaxed);
  }

  /// A stream that is far behind has its last burst go on: one that never completes must not cost memory
  /// without end. What it is charged is the same, for the device does one burst of a stream after the other.
  bool reopen(void* context, void* stream) {
    std::size_t count = 0;
    auto last = closed.end();
    for (auto burst = closed.begin(); burst != closed.end(); ++burst) {
      if (burst->stream_gone || burst->stream != stream || burst->timeline->context != context) continue;
      ++count;
      last = burst;
    }
    if (count < max_unresolved) return false;
    give_event(context, std::exchange(last->end, nullptr));
    last->cut_ns = clock();
    open.push_back(std::move(*last));
    closed.erase(last);
    return true;
  }

  void end(Burst burst) {
    void* context = burst.timeline->context;
    if (functions.context_push(context) != driver_success) return drop(burst);
    burst.end = take_event(context);
    if (burst.end != nullptr && !capturing(burst.stream) &&
        functions.event_record(burst.end, burst.stream) == driver_success) {
      closed.push_back(std::move(burst));
    } else {
      // The device may have failed before the end could be marked: then every question is answered with that
      // error.
      note_failure(functions.event_query(burst.start), burst);
      charge_until_now(burst);
      drop(burst);
    }
    functions.context_pop(&context);
  }

  void note_failure(int result, const Burst& burst) {
    if (is_sticky(result) && failure.error == 0) failure = {result, burst.kernel};
  }

  /// Gives the burst's timeline its place in the period. Precondition: the device has come to the burst,
  /// whose context is current.
  void place(const Burst& burst) {
    Timeline& timeline = *burst.timeline;
    if (functions.event_query(timeline.base) == driver_not_ready) {
      rebase(timeline, burst);
    } else {
      place_base(timeline);
    }
  }

  /// The device may never come to the base, in a stream that waits for something. Then `burst` is what the
  /// others are measured from.
  void rebase(Timeline& timeline, const Burst& burst) {
    const auto has_base = [&](const Burst& one) { return one.start == timeline.base; };
    if (std::ranges::none_of(open, has_base) && std::ranges::none_of(closed, has_base))
      give_event(timeline.context, timeline.base);
    timeline.base = burst.start;
    timeline.offset_ms = by_clock(*timeline.period, burst.start, burst.opened_ns);
    if (timeline.before) leave(*std::exchange(timeline.before, nullptr));
  }

  /// Precondition: the device has come to the base.
  void place_base(Timeline& timeline) {
    if (!timeline.before) return;
    Timeline& before = *timeline.before;
    std::optional<double> at;
    if (functions.event_query(before.base) == driver_success) {
      place_base(before);
      at = time_of(before, timeline.base);
    }
    timeline.offset_ms = at ? *at : by_clock(*timeline.period, timeline.base, timeline.opened_ns);
    leave(*std::exchange(timeline.before, nullptr));
  }

  /// The time in the period of an event that was recorded at `recorded_ns`, which the device has come to.
  [[nodiscard]] double by_clock(const BusyPeriod& period, void* event, std::int64_t recorded_ns) const {
    std::int64_t event_ns = 0;
    const bool told = functions.event_ns != nullptr && functions.event_ns(event, &event_ns) == driver_success;
    return now_in(period, told ? event_ns : recorded_ns);
  }

  /// The event's time in the busy period; none: the driver does not say. Precondition: placed.
  std::optional<double> time_of(const Timeline& timeline, void* event) const {
    float ms = 0;
    if (event != timeline.base && functions.event_elapsed(&ms, timeline.base, event) != driver_success)
      return std::nullopt;
    return timeline.offset_ms + static_cast<double>(ms);
  }

  void charge(BusyPeriod& period, double ms) {
    period.uncharged_ms += ms;
    const auto whole_ns = static_cast<std::uint64_t>(period.uncharged_ms * 1e6);
    period.uncharged_ms -= static_cast<double>(whole_ns) / 1e6;
    settled_ns += whole_ns;
    if (period.meter != nullptr) period.meter->settled_ns += whole_ns;
  }

  /// A period begins when the device comes to its first event, which may be long after that was recorded: a
  /// thread of the software GPU that gets no processor. A driver that tells an event's time tells when.
  void place_period(BusyPeriod& period, void* event, double event_ms) const {
    std::int64_t event_ns = 0;
    if (functions.event_ns == nullptr || functions.event_ns(event, &event_ns) != driver_success) return;
    period.began_ns = event_ns - static_cast<std::int64_t>(event_ms * 1e6);
  }

  [[nodiscard]] double now_in(const BusyPeriod& period, std::int64_t now) const {
    return static_cast<double>(now - period.began_ns) / 1e6;
  }

  /// What is known of a burst whose end will never be measured.
  void charge_until_now(Burst& burst) {
    if (!locate(burst)) return;
    BusyPeriod& period = *burst.timeline->period;
    charge(period, period.busy.add(*burst.start_ms, now_in(period, clock())));
  }

  /// Finds out when the device came to the burst; false: it has not, as far as can be told.
  bool locate(Burst& burst) {
    if (burst.start_ms) return true;
    Timeline& timeline = *burst.timeline;
    void* context = timeline.context;
    if (functions.context_push(context) != driver_success) return false;
    if (functions.event_query(burst.start) == driver_success) {
      place(burst);
      burst.start_ms = time_of(timeline, burst.start);
      if (burst.start_ms) place_period(*timeline.period, burst.start, *burst.start_ms);
    }
    functions.context_pop(&context);
    return burst.start_ms.has_value();
  }

  /// True when the burst needs no more attention.
  bool settle(Burst& burst) {
    const int ready = functions.event_query(burst.end);
    if (ready == driver_not_ready) return false;
    if (ready == driver_success) {
      place(burst);
      const auto start = time_of(*burst.timeline, burst.start);
      const auto end = time_of(*burst.timeline, burst.end);
      if (start && end) charge(*burst.timeline->period, burst.timeline->period->busy.add(*start, *end));
    } else {
      note_failure(ready, burst);
      charge_until_now(burst);
    }
    drop(burst);
    return true;
  }

  /// Bounds what is remembered of each period. All that is complete has been charged; so between two pieces
  /// there was a burst that still runs, or there was nothing.
  void join_pieces() {
    std::vector<std::pair<BusyPeriod*, double>> begins;
    const auto look_at = [&](Burst& burst) {
      BusyPeriod* const period = burst.timeline->period.get();
      if (period->busy.many() && locate(burst)) earliest(begins, period, *burst.start_ms);
    };
    std::ranges::for_each(closed, look_at);
    std::ranges::for_each(open, look_at);
    for (const auto& timeline : timelines) {
      BusyPeriod& period = *timeline->period;
      if (!period.busy.many()) continue;
      const auto found = std::ranges::find(begins, &period, &std::pair<BusyPeriod*, double>::first);
      charge(period, period.busy.join(found == begins.end() ? now_in(period, clock()) : found->second));
    }
  }

  static void earliest(std::vector<std::pair<BusyPeriod*, double>>& begins, BusyPeriod* period,
                       double start_ms) {
    const auto found = std::ranges::find(begins, period, &std::pair<BusyPeriod*, double>::first);
    if (found == begins.end()) {
      begins.emplace_back(period, start_ms);
    } else {
      found->second = std::min(found->second, start_ms);
    }
  }

  /// Finds out what runs, and how much longer that makes the busy periods than what is measured.
  void look_at_running() {
    running = {};
    const std::int64_t now = clock();
    std::vector<std::pair<void*, void*>> seen;  // streams, with their contexts: the rest of each waits
    std::vector<std::pair<BusyPeriod*, double>> begins;
    const auto look_at = [&](Burst& burst) {
      Timeline& timeline = *burst.timeline;
      const std::pair<void*, void*> place{timeline.context, burst.stream};
      if (now - burst.opened_ns < long_burst_ns || std::ranges::find(seen, place) != seen.end()) return;
      seen.push_back(place);
      if (!locate(burst)) return;
      BusyPeriod* const period = timeline.period.get();
      earliest(begins, period, *burst.start_ms);
      const auto ns = static_cast<std::int64_t>((now_in(*period, now) - *burst.start_ms) * 1e6);
      if (!running.running || ns > running.ns) running = {true, std::max<std::int64_t>(ns, 0), burst.kernel};
    };
    for (Burst& burst : closed) look_at(burst);
    for (Burst& burst : open) look_at(burst);
    tell(begins, now);
  }

  void tell(const std::vector<std::pair<BusyPeriod*, double>>& begins, std::int64_t now) {
    std::uint64_t all = settled_ns;
    for (const auto& [period, begin] : begins) {
      const auto more =
          static_cast<std::uint64_t>(std::max(0.0, period->busy.missing(begin, now_in(*period, now)) * 1e6));
      all += more;
      if (period->meter != nullptr)
        period->meter->told_ns = std::max(period->meter->told_ns, period->meter->settled_ns + more);
    }
    if (all <= told_ns) return;
    usage.device_ns.fetch_add(all - told_ns, std::memory_order_relaxed);
    told_ns = all;
  }

  /// The questions asked here have nothing to do with a capture that is under way somewhere: a driver would
  /// refuse them otherwise, and declare the capture invalid.
  void settle_all() {
    int mode = relaxed_capture;
    const bool exchanged = functions.exchange_capture_mode != nullptr &&
                           functions.exchange_capture_mode(&mode) == driver_success;
    settle_closed();
    join_pieces();
    look_at_running();
    if (exchanged) functions.exchange_capture_mode(&mode);
  }

  void settle_closed() {
    for (auto burst = closed.begin(); burst != closed.end();) {
      void* context = burst->timeline->context;
      if (functions.context_push(context) != driver_success) {
        charge_until_now(*burst);
        drop(*burst);
        burst = closed.erase(burst);
        continue;
      }
      const bool done = settle(*burst);
      functions.context_pop(&context);
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
  auto& open = state_->open;
  const auto is_it = [&](const State::Burst& burst) {
    return burst.stream == stream && burst.timeline->context == context;
  };
  auto burst = std::ranges::find_if(open, is_it);
  if (burst != open.end() && state_->clock() - burst->cut_ns >= max_burst_ns) {
    auto finished = std::move(*burst);
    open.erase(burst);
    state_->end(std::move(finished));
    burst = open.end();
  }
  if (burst == open.end()) {
    state_->begin(context, stream, meter);
    burst = std::ranges::find_if(open, is_it);
  }
  if (burst == open.end() || kernel.empty() || burst->kernel_text == kernel.data()) return;
  burst->kernel_text = kernel.data();
  burst->kernel = kernel;
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
  const auto count = [&](const State::Burst& burst) {
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
    State::Burst& burst = state_->open[i];
    if (burst.timeline->context != context || (!whole_context && burst.stream != stream)) continue;
    State::Burst taken = std::move(burst);
    state_->open.erase(state_->open.begin() + static_cast<std::ptrdiff_t>(i));
    if (whole_context) {
      state_->charge_until_now(taken);
      state_->drop(taken);
    } else {
      state_->end(std::move(taken));
    }
  }
  if (!whole_context) {
    for (State::Burst& burst : state_->closed)
      burst.stream_gone |= burst.stream == stream && burst.timeline->context == context;
    return;
  }
  std::erase_if(state_->closed, [&](State::Burst& burst) {
    if (burst.timeline->context != context) return false;
    state_->charge_until_now(burst);
    state_->drop(burst);
    return true;
  });
  // Events die with their context.
  std::erase_if(state_->free_events, [&](const State::FreeEvent& free) { return free.context == context; });
  state_->look_at_running();
}

}  // namespace gpupool::worker
