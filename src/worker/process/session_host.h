// The one session of this process, as its other parts see it: put together here, and asked to do things.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wire/transport/stream.h"
#include "worker/conversation/conversation.h"
#include "worker/conversation/host_calls.h"
#include "worker/device_time/device_work.h"
#include "worker/image/chunk_source.h"
#include "worker/image/session_image.h"
#include "worker/lease/worker_state.h"
#include "worker/moving/session_move.h"
#include "worker/moving/session_parking.h"
#include "worker/session/equipment.h"

namespace gpupool::worker {

class SessionHost {
 public:
  /// Opens the driver and its devices. Throws std::runtime_error with one clear sentence.
  SessionHost(const std::string& driver_path, WorkerState& state);
  /// The same, and takes the session up that the state names, if it names one.
  static std::unique_ptr<SessionHost> open(const std::string& driver_path, WorkerState& state);
  SessionHost(const SessionHost&) = delete;
  SessionHost& operator=(const SessionHost&) = delete;

  [[nodiscard]] Conversation& conversation() { return conversation_; }

  /// See Conversation::serve.
  ServeEnd serve(wire::Stream& stream, std::span<const std::byte> hello) {
    return conversation_.serve(stream, hello);
  }

  // The next are called from the control thread while `serve` runs, and do not wait for the devices.

  /// Whether everything that was received is executed and complete on the devices.
  [[nodiscard]] bool drained() { return conversation_.drained(); }
  /// Whether the devices work for the session.
  [[nodiscard]] bool computes() { return work_.computes(); }
  /// The lease is over: what computes stops where it is, and calls that wait for it are refused soon as
  /// without a lease. False: this driver cannot stop it.
  bool stop_work();
  /// There is a lease: what was stopped goes on.
  void go_on() { work_.go_on(); }
  /// The client has been away for longer than it may: nothing waits for it any more.
  void client_is_gone() { conversation_.client_is_gone(); }
  /// Charges device time that has become known, and looks what the devices do. About once a second.
  void tick();
  /// Looks what the devices do for the session, and tells it in the state.
  void look_at_work() { work_.look(); }
  /// The shares may have another size: the client is told soon.
  void shares_decided() { conversation_.shares_decided(); }

  /// Any thread, any time, without waiting.
  [[nodiscard]] MemoryReport memory_report() const { return parking_.report(); }

  // The next may take seconds. One at a time, from one thread that is neither the control thread nor
  // serves; without a lease in force.

  /// See SessionParking.
  MoveResult park(int drain_ms) { return parking_.park(drain_ms); }
  MoveResult resume(const std::vector<DeviceChange>& devices) { return parking_.resume(devices); }
  /// See SessionMove.
  MoveResult export_image(const std::string& folder) { return move_.export_image(folder); }
  void resume_from(ChunkSource& source, const SessionImage& image) { move_.resume_from(source, image); }
  /// On a thread of its own.
  MoveResult hand_over(wire::Stream& stream) { return move_.hand_over(stream); }
  /// Asks the client to make do with smaller shares, to give back what it only keeps for later, and waits at
  /// most `wait_ms` for its answer. The memory accounts tell the outcome; shares_decided() must follow.
  void make_do(const std::vector<ShareWish>& wishes, int wait_ms) { conversation_.make_do(wishes, wait_ms); }

 private:
  Equipment equipment_;
  HostCalls host_calls_;  // outlives the turns, whose thread asks it
  DeviceWork work_;
  Conversation conversation_;
  SessionParking parking_;
  SessionMove move_;
};

}  // namespace gpupool::worker
