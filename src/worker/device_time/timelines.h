// Where bursts of work lie in time, by the driver's events.
//
// Elapsed times are floats, so the events of a context are measured from a base, the first event of a
// timeline, and a timeline ends before the floats get long. Timelines that follow each other without a pause
// are of one busy period.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/device_time/device_timer.h"
#include "worker/device_time/interval_union.h"
#include "worker/driver/event_functions.h"

namespace gpupool::worker {

inline constexpr int driver_success = 0;
inline constexpr int driver_not_ready = 600;

/// A busy period of one context: times are in milliseconds from its beginning.
struct BusyPeriod {
  std::int64_t began_ns = 0;  // by the timer's clock, as far as is known
  IntervalUnion busy;
  DeviceMeter* meter = nullptr;
  double uncharged_ms = 0;  // below a nanosecond

  [[nodiscard]] double at(std::int64_t now) const { return static_cast<double>(now - began_ns) / 1e6; }
};

/// What is measured from one event on.
struct Timeline {
  void* context;
  void* base;
  std::int64_t opened_ns;
  std::shared_ptr<BusyPeriod> period;
  std::shared_ptr<Timeline> before;  // in whose time the base is yet to be placed
  double offset_ms = 0;              // of the base, from the beginning of the period
  std::size_t bursts = 0;            // that are measured in it, open or unresolved
  bool base_is_start = true;         // of a burst that is still there
  bool retired = false;              // no new bursts; the base is given back
};

struct Burst {
  std::shared_ptr<Timeline> timeline;
  void* stream;
  void* start;
  void* end;  // null while it is open
  std::int64_t opened_ns;
  std::uint64_t piece;
  bool of_client;                                 // a function of the client's: no work of a device
  std::int64_t cut_ns = opened_ns;                // when it was opened, the last time
  bool stream_gone = false;                       // another may have the handle by now
  std::optional<double> start_ms = std::nullopt;  // in the period, once the device has come to it
  const char* kernel_text = nullptr;              // of the last launch, only to compare
  std::string kernel = {};

  [[nodiscard]] bool is_in(const void* context, const void* of_stream) const {
    return stream == of_stream && timeline->context == context;
  }
};

/// Not thread-safe. Where a burst is named, its context must be current.
class Timelines {
 public:
  explicit Timelines(EventFunctions functions) : functions_(functions) {}

  /// An event of the current context, which is `context`; null: there is none to be had.
  [[nodiscard]] void* take_event(void* context);
  void give_event(void* context, void* event);
  /// Events die with their context.
  void forget_events(const void* context);

  /// The timeline of a burst that begins with the event `start`. `unfinished`: that of another burst of the
  /// context, with which it may overlap; null: there is none.
  [[nodiscard]] std::shared_ptr<Timeline> enter(void* context, void* start, DeviceMeter* meter,
                                                std::int64_t now, std::shared_ptr<Timeline> unfinished);
  /// The burst has ended, or is given up.
  void drop(const Burst& burst);

  /// Where the burst lies in its busy period. Precondition: it is complete. None: the driver does not say.
  struct Interval {
    double start_ms, end_ms;
  };
  [[nodiscard]] std::optional<Interval> interval(const Burst& burst);
  /// Finds out when the device came to the burst; false: it has not, as far as can be told.
  bool locate(Burst& burst);

  [[nodiscard]] std::vector<std::shared_ptr<BusyPeriod>> periods() const;

 private:
  void place(const Burst& burst);
  void rebase(Timeline& timeline, const Burst& burst);
  void place_base(Timeline& timeline);
  void place_period(BusyPeriod& period, void* event, double event_ms) const;
  void leave(Timeline& timeline);
  [[nodiscard]] double by_clock(const BusyPeriod& period, void* event, std::int64_t recorded_ns) const;
  [[nodiscard]] std::optional<double> time_of(const Timeline& timeline, void* event) const;

  struct FreeEvent {
    void* context;
    void* event;
  };

  EventFunctions functions_;
  std::vector<std::shared_ptr<Timeline>> current_;  // of each context
  std::vector<FreeEvent> free_;
};

}  // namespace gpupool::worker
