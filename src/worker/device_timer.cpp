#include "worker/device_timer.h"

#include <dlfcn.h>

#include <algorithm>
#include <deque>

#include "worker/interval_union.h"
#include "worker/lease_gate.h"

namespace gpupool::worker {
namespace {

constexpr int kSuccess = 0;
constexpr int kNotReady = 600;
constexpr unsigned kEventDefault = 0;  // timing on
constexpr int kRelaxed = 2;            // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr std::int64_t kMaxBurstNs =
    20'000'000;  // split long bursts, so that figures move while work goes on
constexpr std::int64_t kMaxTimelineNs =
    10'000'000'000;  // elapsed times are floats in ms: past 10 s they lose microseconds
constexpr std::size_t kMaxUnresolved = 256;

template <typename Function>
bool look_up(void* library, Function& out, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* symbol = dlsym(library, name)) {
      out = reinterpret_cast<Function>(symbol);
      return true;
    }
  }
  return false;
}

}  // namespace

bool EventFunctions::load(void* library, EventFunctions& out) {
  look_up(library, out.stream_is_capturing, {"cuStreamIsCapturing"});
  look_up(library, out.exchange_capture_mode, {"cuThreadExchangeStreamCaptureMode"});
  return look_up(library, out.context_push, {"cuCtxPushCurrent_v2", "cuCtxPushCurrent"}) &&
         look_up(library, out.context_pop, {"cuCtxPopCurrent_v2", "cuCtxPopCurrent"}) &&
         look_up(library, out.event_create, {"cuEventCreate"}) &&
         look_up(library, out.event_destroy, {"cuEventDestroy_v2", "cuEventDestroy"}) &&
         look_up(library, out.event_record, {"cuEventRecord"}) &&
         look_up(library, out.event_query, {"cuEventQuery"}) &&
         look_up(library, out.event_elapsed, {"cuEventElapsedTime_v2", "cuEventElapsedTime"});
}

struct DeviceTimer::State {
  /// Intervals of one context, measured from the start event of the first burst.
  struct Timeline {
    void* context;
    void* base;
    std::int64_t opened_ns;
    IntervalUnion busy;
    std::size_t bursts = 0;  // open or unresolved
    bool retired = false;    // no new bursts; base is freed with the last one
    DeviceMeter* meter = nullptr;
  };
  struct Burst {
    std::shared_ptr<Timeline> timeline;
    void* stream;
    void* start;
    void* end;
    std::int64_t opened_ns;
    std::uint64_t piece;
  };
  struct FreeEvent {
    void* context;
    void* event;
  };

  State(EventFunctions functions_, Usage& usage_) : functions(functions_), usage(usage_) {}

  EventFunctions functions;
  Usage& usage;
  std::vector<Burst> open;
  std::deque<Burst> closed;
  std::vector<std::shared_ptr<Timeline>> timelines;  // the current one of each context
  std::vector<FreeEvent> free_events;
  double uncharged_ms = 0;  // below a nanosecond
  std::uint64_t piece = 0;  // that is open

  bool capturing(void* stream) const {
    int status = 0;
    return functions.stream_is_capturing != nullptr &&
           (functions.stream_is_capturing(stream, &status) != kSuccess || status != 0);
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
    return functions.event_create(&event, kEventDefault) == kSuccess ? event : nullptr;
  }

  void give_event(void* context, void* event) {
    if (event != nullptr) free_events.push_back({context, event});
  }

  void drop(Burst& burst) {
    Timeline& timeline = *burst.timeline;
    if (burst.start != timeline.base) give_event(timeline.context, burst.start);
    give_event(timeline.context, burst.end);
    if (--timeline.bursts > 0) return;
    // Nothing refers to the base any more: the next burst opens a new timeline, so the floats stay small.
    give_event(timeline.context, timeline.base);
    timeline.base = nullptr;
    timeline.retired = true;
    std::erase(timelines, burst.timeline);
  }

  void begin(void* context, void* stream, DeviceMeter* meter) {
    if (closed.size() >= kMaxUnresolved)
      return;  // a stream that never completes must not cost memory without end
    if (capturing(stream)) return;
    void* start = take_event(context);
    if (start == nullptr) return;
    if (functions.event_record(start, stream) != kSuccess) {
      give_event(context, start);
      return;
    }
    const std::int64_t now = boottime_ns();
    auto found = std::find_if(timelines.begin(), timelines.end(),
                              [&](const auto& t) { return t->context == context; });
    if (found != timelines.end() && now - (*found)->opened_ns > kMaxTimelineNs) {
      timelines.erase(found);
      found = timelines.end();
    }
    if (found == timelines.end()) {
      timelines.push_back(std::make_shared<Timeline>(Timeline{context, start, now, {}, 0, false, meter}));
      found = timelines.end() - 1;
    }
    ++(*found)->bursts;
    open.push_back({*found, stream, start, nullptr, now, piece});
    usage.in_flight.store(true, std::memory_order_relaxed);
  }

  /// The context of `burst` must be current.
  void end(Burst burst) {
    burst.end = take_event(burst.timeline->context);
    if (burst.end == nullptr || capturing(burst.stream) ||
        functions.event_record(burst.end, burst.stream) != kSuccess) {
      drop(burst);
      return;
    }
    closed.push_back(std::move(burst));
  }

  /// True when the burst needs no more attention.
  bool settle(Burst& burst) {
    const int ready = functions.event_query(burst.end);
    if (ready == kNotReady) return false;
    float start_ms = 0;
    float end_ms = 0;
    if (ready == kSuccess && functions.event_elapsed(&end_ms, burst.timeline->base, burst.end) == kSuccess &&
        (burst.start == burst.timeline->base ||
         functions.event_elapsed(&start_ms, burst.timeline->base, burst.start) == kSuccess)) {
      uncharged_ms += burst.timeline->busy.add(start_ms, end_ms);
      const auto whole_ns = static_cast<std::uint64_t>(uncharged_ms * 1e6);
      uncharged_ms -= static_cast<double>(whole_ns) / 1e6;
      usage.device_ns.fetch_add(whole_ns, std::memory_order_relaxed);
      if (burst.timeline->meter != nullptr) burst.timeline->meter->busy_ns += whole_ns;
    }
    drop(burst);
    return true;
  }

  /// What is asked here has nothing to do with a capture that is under way somewhere: a driver would refuse
  /// it otherwise, and declare the capture invalid.
  void settle_all() {
    int mode = kRelaxed;
    const bool exchanged =
        functions.exchange_capture_mode != nullptr && functions.exchange_capture_mode(&mode) == kSuccess;
    settle_closed();
    if (exchanged) functions.exchange_capture_mode(&mode);
  }

  void settle_closed() {
    for (auto burst = closed.begin(); burst != closed.end();) {
      void* context = burst->timeline->context;
      if (functions.context_push(context) != kSuccess) {
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

DeviceTimer::DeviceTimer(EventFunctions functions, Usage& usage)
    : state_(std::make_unique<State>(functions, usage)) {}

DeviceTimer::~DeviceTimer() = default;

void DeviceTimer::work(void* context, void* stream, DeviceMeter* meter) {
  const std::lock_guard lock(mutex_);
  for (auto burst = state_->open.begin(); burst != state_->open.end(); ++burst) {
    if (burst->stream != stream || burst->timeline->context != context) continue;
    if (boottime_ns() - burst->opened_ns < kMaxBurstNs) return;
    auto finished = std::move(*burst);
    state_->open.erase(burst);
    state_->end(std::move(finished));
    break;
  }
  state_->begin(context, stream, meter);
}

std::uint64_t DeviceTimer::pause() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t piece = state_->piece++;
  if (state_->open.empty() && state_->closed.empty()) return piece;
  for (auto& burst : state_->open) {
    void* context = burst.timeline->context;
    if (state_->functions.context_push(context) != kSuccess) {
      state_->drop(burst);
      continue;
    }
    state_->end(std::move(burst));
    state_->functions.context_pop(&context);
  }
  state_->open.clear();
  state_->settle_all();
  return piece;
}

DeviceProgress DeviceTimer::look(const DeviceMeter& meter) {
  const std::lock_guard lock(mutex_);
  if (!state_->closed.empty()) state_->settle_all();
  DeviceProgress progress{meter.busy_ns, state_->piece, false};
  const auto count = [&](const State::Burst& burst) {
    if (burst.timeline->meter != &meter) return;
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

void DeviceTimer::forget(void* context, void* stream, bool whole_context) {
  const std::lock_guard lock(mutex_);
  // What is complete by now is still charged; of the rest only the open bursts of a living context can be
  // closed.
  state_->settle_all();
  for (std::size_t i = state_->open.size(); i-- > 0;) {
    State::Burst& burst = state_->open[i];
    if (burst.timeline->context != context || (!whole_context && burst.stream != stream)) continue;
    State::Burst taken = std::move(burst);
    state_->open.erase(state_->open.begin() + static_cast<std::ptrdiff_t>(i));
    if (whole_context) {
      state_->drop(taken);
    } else {
      state_->end(std::move(taken));
    }
  }
  if (!whole_context) return;
  std::erase_if(state_->closed, [&](State::Burst& burst) {
    if (burst.timeline->context != context) return false;
    state_->drop(burst);
    return true;
  });
  // Events die with their context.
  std::erase_if(state_->free_events, [&](const State::FreeEvent& free) { return free.context == context; });
}

}  // namespace gpupool::worker
