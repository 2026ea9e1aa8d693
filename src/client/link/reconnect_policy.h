// What to do about a broken connection: a pure policy. Files, sockets and clocks are the caller's.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "client/lease/session_file.h"

namespace gpupool::client {

/// One break, until the connection is made again or given up. The session file says where the worker is,
/// which may be another place than before, and whether there is one.
class ReconnectPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::milliseconds;

  enum class Result {
    broke,    ///< of nothing yet: the connection has just broken. Said once
    none,     ///< nothing was tried yet
    failed,   ///< no connection, or one that broke again
    refused,  ///< nobody listens there
    unknown,  ///< a worker that does not know what this process has said, or serves another one
  };
  struct Step {
    enum class Kind {
      dial,     ///< try `address` for at most `time`, then ask again
      wait,     ///< for `time`, then ask again
      rest,     ///< the session has no lease, and nobody is there: until somebody needs it
      give_up,  ///< lost, because of `message`
    } kind;
    std::string address;
    Duration time{};
    std::string message;
    bool told = false;  ///< the user knows already that it is over, and why
  };

  static constexpr Duration default_limit{60'000};
  /// How long nobody may listen where the worker is (a port that is forwarded does not count). With a lease
  /// it is dead then; without one it may be, or its session lies on disk, or is on its way to another worker.
  static constexpr Duration dead_after{3'000};

  ReconnectPolicy(const std::array<std::uint8_t, 16>& session, std::string address, Duration limit,
                  Clock::time_point now)
      : session_(session), address_(std::move(address)), limit_(limit), since_(now), connected_(now) {}

  /// The connection broke. If it did so soon after it was made, time goes on running.
  void broken(Clock::time_point now);
  /// `file` is what the session file says now; nothing when it cannot be read.
  Step next(const std::optional<SessionFile>& file, Result last, Clock::time_point now);

  /// The connection was made again.
  void connected(Clock::time_point now) { connected_ = now; }
  /// Somebody needs it after a rest, or sooner than it would be tried.
  void wanted(Clock::time_point now);

  /// Where the worker is, as far as is known.
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  static constexpr Duration first_wait{50}, longest_wait{1'000}, settled_after{500};

  std::array<std::uint8_t, 16> session_;
  std::string address_;
  Duration limit_;
  Clock::time_point since_;
  Duration wait_{0};
  bool waited_ = true;  // before the next attempt
  bool resting_ = false;
  bool attached_ = true;  // when it was asked last
  std::optional<Clock::time_point> refused_since_;
  Clock::time_point connected_;
};

}  // namespace gpupool::client
