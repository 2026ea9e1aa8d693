// The work that a session gives its devices: it waits for the session's turn, is measured and charged, stops
// when the lease has ended, and is told of.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "worker/device_time/busy_streams.h"
#include "worker/device_time/device_timer.h"
#include "worker/device_time/device_turns.h"
#include "worker/driver/driver.h"
#include "worker/driver/software_work.h"
#include "worker/lease/worker_state.h"
#include "worker/residence/residence.h"

namespace gpupool::worker {

/// Lives as long as the worker: device time that one session of it used stays charged when the next begins.
class DeviceWork {
 public:
  /// `client_runs`: whether the client runs a function that the device waits for. Any thread asks.
  DeviceWork(const Driver& driver, WorkerState& state, Residence& residence,
             std::function<bool()> client_runs);
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  // The thread that executes calls uses the next ones.

  /// `context`, of the device `ordinal`, is current from now on.
  void selects(CUcontext context, std::size_t ordinal) {
    current_ = context;
    ordinal_ = ordinal;
  }
  /// The epoch of the call being executed; 0: it needs no lease.
  void executes_under(std::uint32_t epoch) { call_epoch_.store(epoch, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t epoch_of_call() const { return call_epoch_.load(std::memory_order_relaxed); }
  /// Before a call that gives the device work on `stream` of the current context. Returns when it is the
  /// session's turn; an error is the call's. Calls of one `key` take about the same time. A `captured` call
  /// is no work yet. `kernel`: a launch's name, which must live until it has been launched.
  [[nodiscard]] CUresult submits(CUstream stream, bool captured, std::uint64_t kernels, std::uint64_t key,
                                 std::string_view kernel);
  /// The same before a function of the client's, which is no work of the device's.
  [[nodiscard]] CUresult submits_function(CUstream stream, bool captured);
  /// Before `stream` of the current context waits for an event. `capturing`: a capture is open; the stream is
  /// captured too, if the event is.
  void waits_in(CUstream stream, bool capturing) {
    if (capturing) busy_.leave(current_, stream);
    if (timer_) timer_->part(current_, stream);
  }
  /// A copy between the connection and device memory: use of the share that gives the device no work.
  void touches_memory() { state_.usage.submitted(boottime_ns(), 0); }
  /// The same, by the copy engine and in the order of `stream` of the current context.
  void copies(CUstream stream) {
    busy_.work(current_, stream);
    touches_memory();
  }
  /// Before a call that may wait for the device, and when nothing is left to execute.
  void waits();
  /// Whether somebody waits for a device while this session's client sends calls without work.
  [[nodiscard]] bool keeps_others_waiting() const;
  /// Before `stream` of the current context is destroyed or begins to capture.
  void forgets(CUstream stream);
  /// Before a stream begins to capture.
  void before_capture() { busy_.before_capture(); }
  /// Before a context is destroyed.
  void forgets_context(CUcontext context);
  /// Whether `context` has finished what it was given, as far as is known without waiting.
  [[nodiscard]] bool idle(CUcontext context);
  /// The same of the streams that are known only. is_complete() tells of the work in others.
  [[nodiscard]] bool listed_idle(CUcontext context);
  /// For a call that waits for `contexts`, from now on. Any thread may call what it returns, which leaves the
  /// last of them current.
  [[nodiscard]] std::function<CUresult()> wait_for(const std::vector<CUcontext>& contexts);
  /// Waits while a stream is captured for what was given to `context`, the current one, but not for work in
  /// living streams that are in no list.
  CUresult finish(CUcontext context) { return busy_.finish(context); }

  // Any thread; none of them waits for the devices.

  /// Charges what has become known.
  void charge();
  /// All that the devices were given, in whatever stream, as far as can be told without waiting.
  [[nodiscard]] bool is_complete();
  /// Whether the devices work for the session. A stream that waits for a function of the client's is no work,
  /// and the client may be gone: it is no reason to end the session. What computes beside it is.
  [[nodiscard]] bool computes();
  /// The lease is over: what computes stops where it is. False: this driver cannot stop it.
  bool stop();
  /// There is a lease: what was stopped goes on.
  void go_on();
  /// Whether it stands still for want of a lease.
  [[nodiscard]] bool stopped() const { return software_.stopped(StopReason::no_lease); }
  /// Looks what the devices do for the session, and tells it in the state.
  void look();

 private:
  /// What has become known of bursts, and of the error that ended the session.
  void resolve();
  /// Whether the devices have nothing to do until the client has run a function. Any thread.
  [[nodiscard]] bool waits_for_client();
  /// Waits for the session's turn, then calls `begin` with what the work is charged to.
  template <class Begin>
  [[nodiscard]] CUresult takes_turn(CUstream stream, bool captured, std::uint64_t key, Begin begin);

  template <class Ask>
  bool in_context(CUcontext context, Ask ask) {
    if (context != current_) api_.cuCtxSetCurrent_(context);
    const bool answer = ask();
    if (context != current_) api_.cuCtxSetCurrent_(current_);
    return answer;
  }

  const DriverApi& api_;
  WorkerState& state_;
  Residence& residence_;
  const std::function<bool()> client_runs_;
  SoftwareWork software_;
  std::optional<DeviceTimer> timer_;  // none: the driver has no events, and device time is not measured
  std::optional<DeviceTurns> turns_;  // with the timer
  BusyStreams busy_;
  std::atomic<std::uint32_t> call_epoch_{0};
  CUcontext current_ = nullptr;
  std::size_t ordinal_ = 0;  // of its device
};

}  // namespace gpupool::worker
