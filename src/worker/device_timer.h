// Device time of a session, measured by the driver's own events.
//
// Work comes in bursts. The executor calls `work(context, stream)` BEFORE each call that gives the device
// work and `pause()` whenever it has nothing left to execute or is about to wait; the timer records one event
// at each end of a burst and asks for the elapsed time only when the end event is known to be complete, so
// measuring never waits. Bursts that overlap on several streams of a context are counted once: what is
// charged is the union of the intervals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "worker/usage.h"

namespace gpupool::worker {

/// The driver functions that measuring needs; opaque pointers as in cuda.h, results are CUresult (0 success,
/// 600 not ready).
struct EventFunctions {
  int (*context_push)(void* context) = nullptr;                     // cuCtxPushCurrent_v2
  int (*context_pop)(void** context) = nullptr;                     // cuCtxPopCurrent_v2
  int (*stream_is_capturing)(void* stream, int* status) = nullptr;  // cuStreamIsCapturing; may be null
  int (*exchange_capture_mode)(int* mode) = nullptr;  // cuThreadExchangeStreamCaptureMode; may be null
  int (*event_create)(void** event, unsigned flags) = nullptr;        // cuEventCreate
  int (*event_destroy)(void* event) = nullptr;                        // cuEventDestroy_v2
  int (*event_record)(void* event, void* stream) = nullptr;           // cuEventRecord
  int (*event_query)(void* event) = nullptr;                          // cuEventQuery
  int (*event_elapsed)(float* ms, void* start, void* end) = nullptr;  // cuEventElapsedTime(_v2)

  /// Looks the functions up in a driver opened by dlopen. All but those that may be null must be there.
  static bool load(void* library, EventFunctions& out);
};

/// What one device has done for the session. Written by a DeviceTimer, read through it.
struct DeviceMeter {
  std::uint64_t busy_ns = 0;
};

/// How far a device is. Pieces are what lies between two pauses, numbered from 0.
struct DeviceProgress {
  std::uint64_t busy_ns = 0;
  std::uint64_t first_unfinished = 0;  ///< number of the first piece that is not known to be complete
  bool in_flight = false;
};

/// Thread-safe. Charges `usage.device_ns` and keeps `usage.in_flight`.
class DeviceTimer {
 public:
  DeviceTimer(EventFunctions functions, Usage& usage);
  ~DeviceTimer();  // leaks unresolved events on purpose: their contexts may be gone
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  /// Before a launch, copy or fill on `stream` of `context` (which must be current on the calling thread).
  /// `meter`, which must outlive the timer, is charged too.
  void work(void* context, void* stream, DeviceMeter* meter = nullptr);

  /// The executor has nothing more to execute: ends the open bursts. Cheap when none is open. Returns the
  /// number of the piece that ends here.
  std::uint64_t pause();

  /// Charges what is complete, and tells how far the device of `meter` is. Never waits for the device.
  [[nodiscard]] DeviceProgress look(const DeviceMeter& meter);

  /// Charges the bursts that are complete. The control thread calls it once a second, `pause` calls it too.
  void resolve();

  /// Before a stream, or a whole context (`stream` null and `whole_context`), is destroyed or begins capture.
  void forget(void* context, void* stream, bool whole_context);

 private:
  struct State;
  std::mutex mutex_;
  std::unique_ptr<State> state_;
};

}  // namespace gpupool::worker
