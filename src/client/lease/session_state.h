// What the client does about its lease: a pure state machine. Files and sockets are the caller's.
//
//   none -- file says attached --> connect --> attached(epoch) -- refused, detach --> parked
//   parked -- file says attached --> lease(epoch) --> attached(epoch)
//   any -- connection broken, ended --> lost
//   lost, parked -- file names another session --> connect --> attached(epoch), with nothing of the old one
//
// A session on several nodes has a worker on each, with an epoch of its own: it is attached while all hold
// their leases, parked when one refuses, lost with any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/lease/session_file.h"

namespace gpupool::client {

class SessionState {
 public:
  enum class State { none, attached, parked, lost };

  /// What to do next after the session file was read because a call needs the worker.
  struct Step {
    enum class Kind {
      ready,    ///< go on: the lease holds
      connect,  ///< open a connection to file.address, then connected()
      lease,    ///< send LEASE for file.epoch on the open connection, then leased() or refused()
      refuse,   ///< the call fails with CUDA_ERROR_DEVICE_UNAVAILABLE and `message`
    } kind;
    std::string message;
    bool log = false;   ///< log the message: at most once per generation
    bool told = false;  ///< the session's holder has told the user the same
  };

  [[nodiscard]] Step needs_worker(const std::optional<SessionFile>& file, const std::string& file_error);

  /// Whether all that a call lacks is a lease: a GPU that is attached now would let it go on.
  [[nodiscard]] bool wants_lease(const SessionFile& file) const;

  /// What a call that lacks a lease may expect of the holder.
  enum class Prospect {
    none,  ///< nothing: it is refused, or goes on
    soon,  ///< the worker has refused the lease that the file names: its holder will notice, and say more
    sure,  ///< the holder has asked for another one
  };
  [[nodiscard]] Prospect prospect(const SessionFile& file) const;

  void connected(const SessionFile& file);
  void leased(const SessionFile& file);
  /// A worker refused a call or a LEASE under the current or offered epoch.
  void refused(std::uint32_t epoch, std::size_t worker = 0);
  void detached();
  void lost();
  /// The user has ended the session: lost, and known why.
  void ended();

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] std::uint32_t epoch(std::size_t worker = 0) const { return parts_[worker].epoch; }

 private:
  /// The session at one of its workers.
  struct Part {
    std::uint32_t epoch = 0;
    std::uint32_t refused_epoch = 0;  ///< highest epoch that the worker refused
    std::array<std::uint8_t, 16> session{};
  };

  Step refuse(const std::optional<SessionFile>& file, std::string message);

  /// Whether the file names the workers that this process is connected with.
  [[nodiscard]] bool names_same_workers(const SessionFile& file) const;
  /// Whether it names none of them.
  [[nodiscard]] bool names_another_session(const SessionFile& file) const;
  /// Whether a worker has refused the lease that the file names.
  [[nodiscard]] bool names_refused(const SessionFile& file) const;

  State state_ = State::none;
  bool ended_ = false;  ///< lost by the user's own wish
  std::vector<Part> parts_{1};
  std::optional<std::uint64_t> logged_generation_;
};

}  // namespace gpupool::client
