// Where the session's device memory lies, and which step may follow. Pure: the steps themselves are taken
// elsewhere (memory_mover.h).
//
//   resident -> parking -> in_host -> resuming -> resident
//                  |          ^           |
//                  v          +-----------+  a failed restore leaves it in the host
//               resident      a failed checkpoint that changed nothing
//   parking, resuming -> lost   the driver says that the process is beyond help
#pragma once

#include <atomic>
#include <cstdint>

namespace gpupool::worker {

/// Changed by the moving thread alone; may be looked at by any.
class MemoryPlace {
 public:
  enum class State : std::uint8_t { resident, parking, in_host, resuming, lost };

  [[nodiscard]] State state() const { return state_.load(); }
  /// What the node agent is told: memory that is on its way is where it came from.
  [[nodiscard]] bool in_host() const { return state() == State::in_host || state() == State::resuming; }
  /// That lie in the host.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_.load(); }

  /// These return false, and change nothing, where the step cannot be taken now.
  bool begin_parking() { return step(State::resident, State::parking); }
  bool begin_resuming() { return step(State::in_host, State::resuming); }
  bool parked(std::uint64_t bytes) {
    if (state() != State::parking) return false;
    bytes_ = bytes;
    return step(State::parking, State::in_host);
  }
  bool resumed() {
    if (!step(State::resuming, State::resident)) return false;
    bytes_ = 0;
    return true;
  }
  /// The step that was begun came to nothing.
  bool stays() { return step(State::parking, State::resident) || step(State::resuming, State::in_host); }
  /// For good.
  void lost() { state_ = State::lost; }

 private:
  bool step(State from, State to) { return state_.compare_exchange_strong(from, to); }

  std::atomic<State> state_{State::resident};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace gpupool::worker
