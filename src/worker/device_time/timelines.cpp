#include "worker/device_time/timelines.h"

#include <algorithm>
#include <utility>

namespace gpupool::worker {
namespace {

constexpr unsigned event_default = 0;  // timing on
/// Past 10 s elapsed times, which are floats in milliseconds, lose microseconds.
constexpr std::int64_t max_timeline_ns = 10'000'000'000;

}  // namespace

void* Timelines::take_event(void* context) {
  for (std::size_t i = free_.size(); i-- > 0;) {
    if (free_[i].context != context) continue;
    void* event = free_[i].event;
    free_[i] = free_.back();
    free_.pop_back();
    return event;
  }
  void* event = nullptr;
  return functions_.event_create(&event, event_default) == driver_success ? event : nullptr;
}

void Timelines::give_event(void* context, void* event) {
  if (event != nullptr) free_.push_back({context, event});
}

void Timelines::forget_events(const void* context) {
  std::erase_if(free_, [&](const FreeEvent& free) { return free.context == context; });
}

std::shared_ptr<Timeline> Timelines::enter(void* context, void* start, DeviceMeter* meter, std::int64_t now,
                                           std::shared_ptr<Timeline> unfinished) {
  std::shared_ptr<Timeline> before;
  const auto found = std::ranges::find_if(current_, [&](const auto& t) { return t->context == context; });
  if (found != current_.end()) {
    if (now - (*found)->opened_ns <= max_timeline_ns) {
      ++(*found)->bursts;
      return *found;
    }
    before = *found;
    current_.erase(found);
  } else {
    // All bursts of the last timeline have ended, and one of an earlier timeline goes on.
    before = std::move(unfinished);
  }
  if (before) ++before->bursts;
  auto period = before ? before->period : std::make_shared<BusyPeriod>(BusyPeriod{now, {}, meter});
  current_.push_back(
      std::make_shared<Timeline>(Timeline{context, start, now, std::move(period), std::move(before)}));
  ++current_.back()->bursts;
  return current_.back();
}

void Timelines::drop(const Burst& burst) {
  Timeline& timeline = *burst.timeline;
  if (burst.start != timeline.base) {
    give_event(timeline.context, burst.start);
  } else {
    timeline.base_is_start = false;
  }
  give_event(timeline.context, burst.end);
  leave(timeline);
  std::erase_if(current_, [](const auto& kept) { return kept->retired; });
}

/// One that is measured from the base needs it no more.
void Timelines::leave(Timeline& timeline) {
  if (--timeline.bursts > 0) return;
  // Nothing refers to the base any more: the next burst opens a new timeline, so the floats stay small.
  give_event(timeline.context, timeline.base);
  timeline.base = nullptr;
  timeline.retired = true;
  if (timeline.before) leave(*std::exchange(timeline.before, nullptr));
}

std::optional<Timelines::Interval> Timelines::interval(const Burst& burst) {
  place(burst);
  const auto start = time_of(*burst.timeline, burst.start);
  const auto end = time_of(*burst.timeline, burst.end);
  if (!start || !end) return std::nullopt;
  return Interval{*start, *end};
}

bool Timelines::locate(Burst& burst) {
  if (burst.start_ms) return true;
  Timeline& timeline = *burst.timeline;
  void* context = timeline.context;
  if (functions_.context_push(context) != driver_success) return false;
  if (functions_.event_query(burst.start) == driver_success) {
    place(burst);
    burst.start_ms = time_of(timeline, burst.start);
    if (burst.start_ms) place_period(*timeline.period, burst.start, *burst.start_ms);
  }
  functions_.context_pop(&context);
  return burst.start_ms.has_value();
}

std::vector<std::shared_ptr<BusyPeriod>> Timelines::periods() const {
  std::vector<std::shared_ptr<BusyPeriod>> found;
  for (const auto& timeline : current_) found.push_back(timeline->period);
  return found;
}

/// Gives the burst's timeline its place in the period. Precondition: the device has come to the burst.
void Timelines::place(const Burst& burst) {
  Timeline& timeline = *burst.timeline;
  if (functions_.event_query(timeline.base) == driver_not_ready) {
    rebase(timeline, burst);
  } else {
    place_base(timeline);
  }
}

/// The device may never come to the base, in a stream that waits for something. Then `burst` is what the
/// others are measured from.
void Timelines::rebase(Timeline& timeline, const Burst& burst) {
  if (!timeline.base_is_start) give_event(timeline.context, timeline.base);
  timeline.base = burst.start;
  timeline.base_is_start = true;
  timeline.offset_ms = by_clock(*timeline.period, burst.start, burst.opened_ns);
  if (timeline.before) leave(*std::exchange(timeline.before, nullptr));
}

/// Precondition: the device has come to the base.
void Timelines::place_base(Timeline& timeline) {
  if (!timeline.before) return;
  Timeline& before = *timeline.before;
  std::optional<double> at;
  if (functions_.event_query(before.base) == driver_success) {
    place_base(before);
    at = time_of(before, timeline.base);
  }
  timeline.offset_ms = at ? *at : by_clock(*timeline.period, timeline.base, timeline.opened_ns);
  leave(*std::exchange(timeline.before, nullptr));
}

/// The time in the period of an event that was recorded at `recorded_ns`, which the device has come to.
double Timelines::by_clock(const BusyPeriod& period, void* event, std::int64_t recorded_ns) const {
  std::int64_t event_ns = 0;
  const bool told = functions_.event_ns != nullptr && functions_.event_ns(event, &event_ns) == driver_success;
  return period.at(told ? event_ns : recorded_ns);
}

/// The event's time in the busy period; none: the driver does not say. Precondition: placed.
std::optional<double> Timelines::time_of(const Timeline& timeline, void* event) const {
  float ms = 0;
  if (event != timeline.base && functions_.event_elapsed(&ms, timeline.base, event) != driver_success)
    return std::nullopt;
  return timeline.offset_ms + static_cast<double>(ms);
}

/// A period begins when the device comes to its first event, which may be long after that was recorded: a
/// thread of the software GPU that gets no processor. A driver that tells an event's time tells when.
void Timelines::place_period(BusyPeriod& period, void* event, double event_ms) const {
  std::int64_t event_ns = 0;
  if (functions_.event_ns == nullptr || functions_.event_ns(event, &event_ns) != driver_success) return;
  period.began_ns = event_ns - static_cast<std::int64_t>(event_ms * 1e6);
}

}  // namespace gpupool::worker
