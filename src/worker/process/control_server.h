// The control socket: the node agent's way to the worker, and the worker's clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "wire/transport/socket.h"
#include "worker/lease/lease_end.h"
#include "worker/lease/worker_state.h"
#include "worker/process/client_seat.h"
#include "worker/process/control_line.h"
#include "worker/process/slow_commands.h"

namespace gpupool::worker {

class SessionHost;

struct ControlTimers {
  std::int64_t stats_ms = 1000;           ///< how often changed figures are pushed
  LeaseEndTimers lease_end = {};          ///< how long what a lease leaves behind may take
  int drain_ms = 2000;                    ///< how long parking waits for work
  std::int64_t client_grace_ms = 60'000;  ///< how long a lost client may take to come back
  std::int64_t orphan_exit_ms = 600'000;  ///< how long a worker without lease and agent lives on
};

/// Unix stream socket, one command per line. Run by one thread, which also notices deadlines and signals.
class ControlServer {
 public:
  /// Binds `path` (mode 0600). A socket file that nobody listens on is replaced. Throws std::runtime_error.
  /// SIGTERM and SIGINT must be blocked in every thread: they are read here.
  ControlServer(std::string path, ControlTimers timers, WorkerState& state);
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Removes the socket's file.
  void remove_socket() const noexcept;

  /// Makes `run` look at the client seat again. Any thread.
  void wake() const noexcept;

  /// Exit status of a worker whose session computed on after its lease, on a driver that cannot stop work.
  static constexpr int exit_computes_on = 11;

  /// Memory that was brought back for nothing goes to the host again, unless there is a lease by then. Any
  /// thread.
  void put_away() noexcept;

  /// Makes `run` return `status`. Any thread.
  void end(int status) noexcept;

  /// Serves until `stop`, a signal of the agent (of anybody, if there is none), the orphan's exit, end(), or
  /// a lease's end that ends the session. The last that the node agent hears is what the devices did for the
  /// session. Returns the process's exit status.
  [[nodiscard]] int run(SessionHost& session, const ClientSeat& seat);

 private:
  struct Connection {
    wire::Socket socket;
    std::uint64_t id;
    std::string input;
    std::string last_stats;
    bool broken = false;
  };
  /// A revocation that is answered when the lease's end is over.
  struct Revoker {
    std::uint64_t connection;
    std::uint32_t epoch;
  };

  [[nodiscard]] int serve(SessionHost& session, const ClientSeat& seat);
  /// Whether a signal that came ends the worker. Batch systems and service managers signal all processes at
  /// once: as long as an agent is there, it decides when its workers end, and sessions may leave before.
  [[nodiscard]] bool told_to_end();
  void accept_one(std::int64_t now_ns);
  void send_line(Connection& connection, const std::string& line);
  void broadcast(const std::string& line);
  /// False: the process shall end.
  bool read_from(Connection& connection, SessionHost& session, const ClientSeat& seat);
  bool execute(Connection& connection, const std::string& line, SessionHost& session, const ClientSeat& seat);
  void grant(Connection& connection, const LeaseCommand& command, SessionHost& session,
             const ClientSeat& seat);
  void revoke(Connection& connection, const RevokeCommand& command, SessionHost& session,
              std::int64_t now_ns);
  void begin_lease_end(std::uint32_t epoch, bool gate_open, std::int64_t now_ns);
  /// False: the session computes on, and cannot be stopped.
  bool look_at_lease_end(SessionHost& session, std::int64_t now_ns);
  void conclude_lease_end(SessionHost& session);
  void lease_granted(SessionHost& session);
  void park(Connection& connection, const ParkCommand& command, SessionHost& session);
  MoveResult park_unless_attached(SessionHost& session);
  void export_image(Connection& connection, const ExportCommand& command, SessionHost& session);
  void do_slowly(Connection& connection, std::uint32_t epoch, std::function<MoveResult()> work,
                 std::function<std::string(const MoveResult&)> conclude);
  /// False: the session is lost.
  bool answer_finished();
  void report_client(const ClientSeat::View& client, std::int64_t now_ns);
  void report_fence(std::int64_t now_ns);
  void begin_end_of_stray_work(SessionHost& session, std::int64_t now_ns);
  void push_stats(const SessionHost& session, const ClientSeat::View& client, std::int64_t now_ns);
  [[nodiscard]] bool orphaned(std::int64_t now_ns);
  [[nodiscard]] int next_timeout_ms(std::int64_t now_ns, const ClientSeat::View& client) const;

  static constexpr int stays = -1;

  std::string path_;
  ControlTimers timers_;
  WorkerState& state_;
  wire::Socket listener_, wake_, signals_;
  std::atomic<int> end_status_{stays};
  std::atomic<bool> puts_away_{false};
  std::list<Connection> connections_;
  std::uint64_t last_connection_ = 0;
  std::int64_t next_stats_ns_ = 0;
  std::int64_t accepts_from_ns_ = 0;
  std::int64_t alone_since_ns_ = 0;  // 0: not alone
  std::uint32_t fenced_epoch_ = 0;   // last one reported
  std::optional<LeaseEnd> lease_end_;
  std::uint32_t ended_epoch_ = 0;  // up to which leases have ended
  std::int64_t ended_for_ns_ = 0;  // what their work has spent of the grace
  std::vector<Revoker> revokers_;  // that wait for lease_end_, in their order
  bool reported_connected_ = false;
  std::uint64_t reported_connections_ = 0;
  SlowCommands slow_{[this] { wake(); }};  // the last member: its thread uses the others
};

}  // namespace gpupool::worker
