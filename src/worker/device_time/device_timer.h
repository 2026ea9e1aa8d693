// Device time of a session, measured by the driver's own events.
//
// Work comes in bursts. DeviceWork calls `work(context, stream)` BEFORE each call that gives the device
// work and `pause()` whenever it has nothing left to execute or is about to wait; the timer records one event
// at each end of a burst and asks for the elapsed time only when the end event is known to be complete, so
// measuring never waits. Bursts that overlap on several streams of a context are counted once: what is
// charged is the union of the intervals.
//
// 1. A burst whose first event is complete and whose last is not is running: it counts up to now, by the
//    timer's clock from the moment at which its busy period began: the time of its first event where the
//    driver tells that, else the moment at which that was recorded. A later measurement by events takes
//    its place.
// 2. A time that has been told (`usage.device_ns`, DeviceProgress::busy_ns) never goes back: if the estimate
//    was too high nothing is added until events have measured as much.
// 3. Work that ends in an error, or with its context, stays charged for as long as it is known to have run.
// 4. A function of the client's in a stream is no work: it is measured apart, and not charged. So a burst
// that a
//    device has come to and not finished is work, unless a function was put into the middle of it, by a graph
//    or where a stream is further behind than max_apart bursts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "worker/driver/event_functions.h"
#include "worker/lease/lease_gate.h"
#include "worker/lease/usage.h"

namespace gpupool::worker {

/// What one device has done for the session. Written by a DeviceTimer, read through it.
struct DeviceMeter {
  std::uint64_t settled_ns = 0;  ///< measured
  std::uint64_t told_ns = 0;     ///< with what runs
};

/// How far a device is. Pieces are what lies between two pauses, numbered from 0.
struct DeviceProgress {
  std::uint64_t busy_ns = 0;
  std::uint64_t first_unfinished = 0;  ///< number of the first piece that is not known to be complete
  bool in_flight = false;
};

/// What has run for the longest of what runs.
struct RunningBurst {
  bool running = false;
  std::int64_t ns = 0;  ///< for how long
  std::string kernel;   ///< launched last in this burst; empty: none was
};

/// An error of the device, and the kernel that was launched last in the burst that ended in it.
struct DeviceFailure {
  int error = 0;  ///< CUresult; 0: none
  std::string kernel;
};

/// Thread-safe. Charges `usage.device_ns` and keeps `usage.in_flight`.
class DeviceTimer {
 public:
  using Clock = std::function<std::int64_t()>;

  /// `clock`: nanoseconds from anywhere, as the device's time passes.
  DeviceTimer(EventFunctions functions, Usage& usage, Clock clock = boottime_ns);
  ~DeviceTimer();  // leaks unresolved events on purpose: their contexts may be gone
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  /// Before a launch, copy or fill on `stream` of `context` (which must be current on the calling thread).
  /// `meter`, which must outlive the timer, is charged too. `kernel`: a launch's.
  void work(void* context, void* stream, DeviceMeter* meter = nullptr, std::string_view kernel = {});

  /// Before a function of the client's on `stream` of `context`, which must be current. What comes after it,
  /// in whatever stream, may wait for it.
  void client_function(void* context, void* stream, DeviceMeter* meter = nullptr);

  /// Before `stream` of `context` waits for another, which may be captured: then it is captured, too.
  void part(void* context, void* stream);

  /// Nothing is left to execute: ends the open bursts. Cheap when none is open. Returns the
  /// number of the piece that ends here.
  std::uint64_t pause();

  /// Charges what is complete and what runs, and tells how far the device of `meter` is. Never waits for the
  /// device.
  [[nodiscard]] DeviceProgress look(DeviceMeter& meter);

  /// Charges the bursts that are complete and what runs. The control thread calls it once a second, `pause`
  /// calls it too.
  void resolve();

  /// Whether a device has come to work and not finished it. What waits in a stream is not meant, nor are
  /// functions of the client's.
  [[nodiscard]] bool under_way();

  /// As of the last look() or resolve().
  [[nodiscard]] RunningBurst running() const;
  /// The first that was met; for ever.
  [[nodiscard]] DeviceFailure failure() const;

  /// Before a stream, or a whole context (`stream` null and `whole_context`), is destroyed or begins capture.
  void forget(void* context, void* stream, bool whole_context);

 private:
  struct State;
  mutable std::mutex mutex_;
  std::unique_ptr<State> state_;
};

}  // namespace gpupool::worker
