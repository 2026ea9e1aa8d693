// The session's turns on its devices: what connects its work with the enforcer.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "enforcer/device_turn.h"
#include "worker/device_time/device_timer.h"
#include "worker/driver/software_work.h"
#include "worker/lease/worker_state.h"
#include "worker/residence/residence.h"

namespace gpupool::worker {

/// One turn for each device that has a book of turns. Without one, work is measured and never held back.
class DeviceTurns {
 public:
  /// `timer` and `work` must outlive this. A book that cannot be used is told of on stderr and leaves its
  /// device without.
  DeviceTurns(WorkerState& state, DeviceTimer& timer, Residence& residence, SoftwareWork& work,
              enforcer::SessionFacts facts);
  DeviceTurns(const DeviceTurns&) = delete;
  DeviceTurns& operator=(const DeviceTurns&) = delete;

  /// Before a call that gives the device `ordinal` work; calls of one `key` take about the same time. False:
  /// the lease ended while the session waited for its turn.
  [[nodiscard]] bool before_work(std::size_t ordinal, std::uint64_t key);
  /// What the work on the device is charged to.
  [[nodiscard]] DeviceMeter* meter(std::size_t ordinal);
  /// After the timer's pause(), which returned `piece`.
  void paused(std::uint64_t piece);
  /// Gives back what is of no use any more. Any thread.
  void tidy();
  /// Whether somebody waits for a device of the session.
  [[nodiscard]] bool contended() const;

 private:
  struct Device final : enforcer::Gauge {
    Device(DeviceTimer& device_timer, Residence& session_residence, SoftwareWork* software_work)
        : timer(device_timer), residence(session_residence), work(software_work) {}
    std::uint64_t cut() override { return timer.pause(); }
    Reading look() override;
    [[nodiscard]] bool can_stop() const override { return work != nullptr; }
    bool stop() override { return work != nullptr && work->stop(StopReason::no_turn); }
    void go_on() override { work->go_on(StopReason::no_turn); }

    DeviceTimer& timer;
    Residence& residence;
    SoftwareWork* work;  // null: a running kernel cannot be stopped
    DeviceMeter meter;
    std::atomic<std::uint64_t> known_ns{0};      // of what the meter says
    std::string uuid;                            // of the device that the turn is on
    std::unique_ptr<enforcer::DeviceTurn> turn;  // null: not enforced
  };

  void open(std::size_t ordinal);

  WorkerState& state_;
  DeviceTimer& timer_;
  Residence& residence_;
  const enforcer::SessionFacts facts_;
  std::mutex opening_;  // a device's turn changes under it, on the executing thread alone
  std::deque<Device> devices_;
  std::size_t last_ = 0;  // the device that was given work last
};

}  // namespace gpupool::worker
