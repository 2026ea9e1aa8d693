#include "worker/process/control_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "wire/transport/local_socket.h"
#include "worker/process/control_line.h"
#include "worker/process/lease_office.h"
#include "worker/process/session_host.h"

namespace gpupool::worker {
namespace {

constexpr std::int64_t ns_per_ms = 1'000'000;
constexpr std::size_t max_connections = 8;
/// So long nobody is let in when that failed: descriptors may have run out.
constexpr std::int64_t accept_again_ms = 50;
/// A client that is asked to give memory back and does not answer, or whose device works for longer, keeps
/// it.
constexpr int client_answer_ms = 3000;
/// How often the end of a lease is looked at: at first as often as short work needs, then less.
constexpr std::int64_t look_at_end_ms = 1, look_at_long_end_ms = 20;
constexpr std::int64_t short_end_ns = 200 * ns_per_ms;
/// The running work is looked at so often, so that anybody that asks hears of it soon.
constexpr std::int64_t look_at_work_ms = 250;

}  // namespace

ControlServer::ControlServer(std::string path, ControlTimers timers, WorkerState& state)
    : path_(std::move(path)), timers_(timers), state_(state) {
  std::string error;
  listener_ = wire::listen_local(path_, error);
  if (!listener_) throw std::runtime_error(error);
  wake_ = wire::Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  sigset_t endings;
  sigemptyset(&endings);
  sigaddset(&endings, SIGTERM);
  sigaddset(&endings, SIGINT);
  signals_ = wire::Socket(::signalfd(-1, &endings, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!wake_ || !signals_) throw std::runtime_error("no file descriptors left");
}

void ControlServer::remove_socket() const noexcept {
  ::unlink(path_.c_str());
}

void ControlServer::wake() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof(one));
}

void ControlServer::accept_one(std::int64_t now_ns) {
  wire::Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    // The listener stays readable. Not slept: this thread fences.
    if (errno != EAGAIN) accepts_from_ns_ = now_ns + accept_again_ms * ns_per_ms;
    return;
  }
  const auto peer = wire::peer_user(socket.fd());
  if (peer != ::geteuid() && peer != uid_t{0}) return;
  if (connections_.size() == max_connections) connections_.pop_front();
  connections_.push_back({std::move(socket), ++last_connection_, {}, {}, false});
  // A client may have come before this agent did.
  if (reported_connected_) send_line(connections_.back(), "client connected=1");
}

void ControlServer::send_line(Connection& connection, const std::string& line) {
  const std::string text = line + '\n';
  // An agent that does not read is dropped: it may connect again, and the worker must not wait for it.
  const ssize_t sent = ::send(connection.socket.fd(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(text.size())) connection.broken = true;
}

void ControlServer::broadcast(const std::string& line) {
  for (Connection& connection : connections_) send_line(connection, line);
}

/// A lease for memory that is in the host has it brought back first; one that comes while something is being
/// moved waits for that. A client that is there is asked before a share of its becomes smaller.
void ControlServer::grant(Connection& connection, const LeaseCommand& command, SessionHost& session,
                          const ClientSeat& seat) {
  const std::int64_t now = boottime_ns();
  const std::optional<bool> elsewhere = changes_devices(state_, command);
  const std::string refused = "refused epoch=" + std::to_string(command.epoch) + " reason=";
  if (!elsewhere) return send_line(connection, refused + "bad-share");
  const bool in_host = session.memory_report().in_host;
  const LeaseGate::View held = state_.gate.view(now);
  const bool resizes = held.state == LeaseState::attached && held.epoch == command.epoch;
  // A client without a lease allocates nothing meanwhile: it is asked only for what it keeps beyond the new
  // size.
  const bool asks_client =
      !in_host && seat.view().connected &&
      (resizes ? !shrunk_shares(state_, command).empty() : exceeds_shares(state_, command));
  const bool at_once = slow_.outstanding() == 0 && !in_host;
  if (at_once && *elsewhere) return send_line(connection, refused + "resident");
  if (at_once && !asks_client) {
    const std::string answer = apply_lease(state_, command, now);
    lease_granted(session);
    send_line(connection, answer);
    if (!command.shares.empty()) session.shares_decided();
    return;
  }
  const auto refusal =
      asks_client ? foresee_gate_refusal(state_, command, now) : foresee_refusal(state_, command, now);
  if (refusal) return send_line(connection, *refusal);
  // The answer may take seconds, and no renewal comes in between.
  if (asks_client && resizes) (void)state_.gate.grant(command.epoch, command.deadline_ns, now);
  do_slowly(
      connection, command.epoch,
      [this, &session, command, asks_client] {
        MoveResult resumed = session.resume(command.devices);
        // Not earlier: what was granted meanwhile says how much less it is.
        if (asks_client && resumed.refusal.empty() && !resumed.lost)
          session.make_do(shrunk_shares(state_, command), client_answer_ms);
        return resumed;
      },
      [this, &session, command](const MoveResult& resumed) {
        const std::string answer = conclude_lease(state_, command, resumed, boottime_ns());
        lease_granted(session);
        session.shares_decided();
        return answer;
      });
}

/// A lease that was refused leaves everything as it was. Under a new one goes on what the one before left
/// behind.
void ControlServer::lease_granted(SessionHost& session) {
  const LeaseGate::View lease = state_.gate.view(boottime_ns());
  if (lease.state != LeaseState::attached) return;
  if (lease_end_ && lease.epoch > lease_end_->epoch()) conclude_lease_end(session);
  if (!lease_end_) session.go_on();
}

/// Answered when nothing of the lease computes any more.
void ControlServer::revoke(Connection& connection, const RevokeCommand& command, SessionHost& session,
                           std::int64_t now_ns) {
  const LeaseGate::View view = state_.gate.view(now_ns);
  if (view.state == LeaseState::attached && command.epoch >= view.epoch && !lease_end_) {
    begin_lease_end(view.epoch, true, now_ns);
  }
  if (!lease_end_ || command.epoch < lease_end_->epoch()) {
    return send_line(connection, apply_revoke(state_, command));
  }
  if (command.epoch > lease_end_->barred()) {
    // A lease of that epoch may be on its way: it must find the gate shut, however long this end takes. What
    // was posted and is not executed yet is kept for the next lease.
    static_cast<void>(state_.gate.revoke(command.epoch));
    lease_end_->bars(command.epoch);
    session.tick();
  }
  revokers_.push_back({connection.id, command.epoch});
}

void ControlServer::begin_lease_end(std::uint32_t epoch, bool gate_open, std::int64_t now_ns) {
  lease_end_.emplace(epoch, gate_open, now_ns, timers_.lease_end, epoch <= ended_epoch_ ? ended_for_ns_ : 0);
}

bool ControlServer::look_at_lease_end(SessionHost& session, std::int64_t now_ns) {
  while (lease_end_) {
    const bool drained = lease_end_->draining() && session.drained();
    switch (lease_end_->look(drained, lease_end_->draining() || session.computes(), now_ns)) {
      case LeaseEnd::Next::wait:
        return true;
      case LeaseEnd::Next::shut:
        static_cast<void>(state_.gate.revoke(lease_end_->barred()));
        lease_end_->shut();
        session.tick();  // a session without a lease keeps no device from others
        break;
      case LeaseEnd::Next::stop: {
        const bool stopped = session.stop_work();
        const WorkView work = state_.work.view();
        std::fprintf(stderr,
                     "gpupool-worker: the lease of epoch %u has ended and the device still works (%s, for "
                     "%lld ms): %s\n",
                     lease_end_->epoch(), work.kernel.empty() ? "no kernel known" : work.kernel.c_str(),
                     work.since_ns == 0 ? 0LL : static_cast<long long>((now_ns - work.since_ns) / ns_per_ms),
                     stopped ? "stopped; it goes on under the next lease"
                             : "this driver cannot stop it, so the session ends");
        if (!stopped) return false;
        conclude_lease_end(session);
        break;
      }
      case LeaseEnd::Next::over:
        conclude_lease_end(session);
        break;
    }
  }
  return true;
}

void ControlServer::conclude_lease_end(SessionHost& session) {
  ended_epoch_ = lease_end_->barred();
  ended_for_ns_ = boottime_ns() - lease_end_->began_ns();
  lease_end_.reset();
  session.tick();
  // A lease that was not renewed in time and that nobody has revoked stays fenced.
  const LeaseAnswer barred = revokers_.empty() ? LeaseAnswer::ok : state_.gate.revoke(ended_epoch_);
  for (const Revoker& revoker : std::exchange(revokers_, {})) {
    const auto asks = [&](const Connection& one) { return one.id == revoker.connection; };
    const auto connection = std::ranges::find_if(connections_, asks);
    if (connection != connections_.end()) send_line(*connection, conclude_revoke({revoker.epoch}, barred));
  }
  next_stats_ns_ = 0;
}

void ControlServer::park(Connection& connection, const ParkCommand& command, SessionHost& session) {
  if (const auto refusal = foresee_park_refusal(state_, command, boottime_ns())) {
    return send_line(connection, *refusal);
  }
  // No lease comes in between: one that would is waiting behind this.
  do_slowly(
      connection, command.epoch, [this, &session] { return park_unless_attached(session); },
      [command](const MoveResult& parked) { return conclude_park(command, parked); });
}

MoveResult ControlServer::park_unless_attached(SessionHost& session) {
  const bool attached = state_.gate.view(boottime_ns()).state == LeaseState::attached;
  return attached ? MoveResult{"attached"} : session.park(timers_.drain_ms);
}

void ControlServer::put_away() noexcept {
  puts_away_.store(true);
  wake();
}

void ControlServer::export_image(Connection& connection, const ExportCommand& command, SessionHost& session) {
  const LeaseGate::View view = state_.gate.view(boottime_ns());
  if (view.state == LeaseState::attached) {
    return send_line(connection, "refused epoch=" + std::to_string(view.epoch) + " reason=attached");
  }
  do_slowly(
      connection, view.epoch,
      [this, &session, folder = command.folder] {
        const bool attached = state_.gate.view(boottime_ns()).state == LeaseState::attached;
        if (attached) return MoveResult{"attached"};
        MoveResult exported = session.export_image(folder);
        if (exported.brought_back) exported.lost = park_unless_attached(session).lost;
        return exported;
      },
      [this](const MoveResult& exported) { return conclude_export(state_, exported, boottime_ns()); });
}

void ControlServer::do_slowly(Connection& connection, std::uint32_t epoch, std::function<MoveResult()> work,
                              std::function<std::string(const MoveResult&)> conclude) {
  if (!slow_.add({connection.id, std::move(work), std::move(conclude)})) {
    send_line(connection, "refused epoch=" + std::to_string(epoch) + " reason=busy");
  }
}

bool ControlServer::answer_finished() {
  bool good = true;
  for (const SlowCommands::Finished& finished : slow_.take_finished()) {
    const std::string line = finished.command.conclude(finished.result);
    for (Connection& connection : connections_) {
      if (connection.id == finished.command.connection) send_line(connection, line);
    }
    good = good && !finished.result.lost;
    next_stats_ns_ = 0;  // everybody hears where the memory is now
  }
  return good;
}

bool ControlServer::execute(Connection& connection, const std::string& line, SessionHost& session,
                            const ClientSeat& seat) {
  const ControlCommand command = parse_control_line(line);
  const std::int64_t now = boottime_ns();
  if (const auto* lease = std::get_if<LeaseCommand>(&command)) {
    grant(connection, *lease, session, seat);
  } else if (const auto* revoke = std::get_if<RevokeCommand>(&command)) {
    this->revoke(connection, *revoke, session, now);
  } else if (const auto* away = std::get_if<ParkCommand>(&command)) {
    park(connection, *away, session);
  } else if (const auto* out = std::get_if<ExportCommand>(&command)) {
    export_image(connection, *out, session);
  } else if (std::holds_alternative<StatsCommand>(command)) {
    session.tick();
    send_line(connection, stats_now(state_, session.memory_report(), seat.view().connected, now));
  } else if (std::holds_alternative<StopCommand>(command)) {
    send_line(connection, "ok");
    return false;
  } else {
    send_line(connection, "error " + std::get<BadCommand>(command).reason);
  }
  return true;
}

bool ControlServer::read_from(Connection& connection, SessionHost& session, const ClientSeat& seat) {
  std::array<char, 4096> chunk{};
  const ssize_t got = ::recv(connection.socket.fd(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) {
    connection.broken = true;
    return true;
  }
  connection.input.append(chunk.data(), static_cast<std::size_t>(got));
  std::size_t end = 0;
  while (!connection.broken && (end = connection.input.find('\n')) != std::string::npos) {
    const std::string line = connection.input.substr(0, end);
    connection.input.erase(0, end + 1);
    if (!execute(connection, line, session, seat)) return false;
  }
  if (connection.input.size() > max_control_line) {
    send_line(connection, "error line too long");
    connection.broken = true;
  }
  return true;
}

void ControlServer::report_client(const ClientSeat::View& client, std::int64_t now_ns) {
  if (client.connections != reported_connections_ && !reported_connected_) {
    // Said even of a client that has left again since: the agent must not wait for one that was here.
    reported_connected_ = true;
    broadcast("client connected=1");
  }
  reported_connections_ = client.connections;
  bool connected = client.connected;
  if (!connected && reported_connected_ && !client.said_goodbye) {
    connected =
        now_ns < client.gone_since_ns + timers_.client_grace_ms * ns_per_ms;  // it may still come back
  }
  if (connected == reported_connected_) return;
  reported_connected_ = connected;
  broadcast(std::string("client connected=") + (connected ? "1" : "0"));
}

void ControlServer::report_fence(std::int64_t now_ns) {
  const LeaseGate::View lease = state_.gate.view(now_ns);
  // A start may take longer than a lease lasts: then its renewal comes late, and nobody was served before.
  if (lease.state != LeaseState::fenced || lease.unserved || lease.epoch == fenced_epoch_) return;
  fenced_epoch_ = lease.epoch;
  std::fprintf(stderr, "gpupool-worker: fenced: the lease of epoch %u was not renewed in time\n",
               lease.epoch);
  broadcast("fenced epoch=" + std::to_string(lease.epoch));
  if (!lease_end_) begin_lease_end(lease.epoch, false, now_ns);
}

/// Work can begin after the lease's end: a stream may have waited for a function of the client's until now.
void ControlServer::begin_end_of_stray_work(SessionHost& session, std::int64_t now_ns) {
  if (lease_end_ || !state_.usage.in_flight.load(std::memory_order_relaxed)) return;
  const LeaseGate::View lease = state_.gate.view(now_ns);
  if (lease.state != LeaseState::attached && session.computes()) begin_lease_end(lease.epoch, false, now_ns);
}

void ControlServer::push_stats(const SessionHost& session, const ClientSeat::View& client,
                               std::int64_t now_ns) {
  const std::string line = stats_now(state_, session.memory_report(), client.connected, now_ns);
  for (Connection& connection : connections_) {
    if (connection.last_stats == line) continue;
    connection.last_stats = line;
    send_line(connection, line);
  }
}

bool ControlServer::orphaned(std::int64_t now_ns) {
  const bool alone = connections_.empty() && state_.gate.view(now_ns).state != LeaseState::attached;
  if (!alone) {
    alone_since_ns_ = 0;
  } else if (alone_since_ns_ == 0) {
    alone_since_ns_ = now_ns;
  }
  return alone && now_ns - alone_since_ns_ >= timers_.orphan_exit_ms * ns_per_ms;
}

int ControlServer::next_timeout_ms(std::int64_t now_ns, const ClientSeat::View& client) const {
  std::int64_t next = next_stats_ns_;
  const LeaseGate::View lease = state_.gate.view(now_ns);
  if (lease.state == LeaseState::attached) next = std::min(next, lease.deadline_ns);
  if (accepts_from_ns_ > now_ns) next = std::min(next, accepts_from_ns_);
  if (!client.connected && reported_connected_) {
    next = std::min(next, client.gone_since_ns + timers_.client_grace_ms * ns_per_ms);
  }
  std::int64_t most = timers_.stats_ms;
  if (state_.usage.in_flight.load(std::memory_order_relaxed)) most = std::min(most, look_at_work_ms);
  if (lease_end_) {
    const bool is_long = now_ns - lease_end_->began_ns() > short_end_ns;
    most = std::min(most, is_long ? look_at_long_end_ms : look_at_end_ms);
  }
  return static_cast<int>(std::clamp<std::int64_t>((next - now_ns + ns_per_ms - 1) / ns_per_ms, 0, most));
}

void ControlServer::end(int status) noexcept {
  end_status_.store(status);
  wake();
}

int ControlServer::run(SessionHost& session, const ClientSeat& seat) {
  const int status = serve(session, seat);
  // What is known, before the driver is asked, which may not answer.
  push_stats(session, seat.view(), boottime_ns());
  session.tick();
  push_stats(session, seat.view(), boottime_ns());
  return status;
}

bool ControlServer::told_to_end() {
  bool ends = false;
  signalfd_siginfo got{};
  while (::read(signals_.fd(), &got, sizeof(got)) == static_cast<ssize_t>(sizeof(got))) {
    const auto is_of_sender = [sender = static_cast<pid_t>(got.ssi_pid)](const Connection& connection) {
      return wire::peer_process(connection.socket.fd()) == sender;
    };
    ends = ends || connections_.empty() || std::ranges::any_of(connections_, is_of_sender);
  }
  return ends;
}

int ControlServer::serve(SessionHost& session, const ClientSeat& seat) {
  std::vector<pollfd> watched;
  std::int64_t looked_ns = 0;
  for (;;) {
    std::int64_t now = boottime_ns();
    const ClientSeat::View client = seat.view();
    if (!answer_finished()) {
      std::fputs("gpupool-worker: the session's memory is lost: ending\n", stderr);
      return 0;
    }
    const bool was_connected = reported_connected_;
    report_client(client, now);
    if (was_connected && !reported_connected_) session.client_is_gone();
    report_fence(now);
    begin_end_of_stray_work(session, now);
    if (!look_at_lease_end(session, now)) return exit_computes_on;
    if (state_.usage.in_flight.load(std::memory_order_relaxed) &&
        now - looked_ns >= look_at_work_ms * ns_per_ms) {
      session.look_at_work();
      looked_ns = now;
    }
    if (now >= next_stats_ns_) {
      session.tick();
      push_stats(session, client, now);
      next_stats_ns_ = now + timers_.stats_ms * ns_per_ms;
    }
    if (puts_away_.exchange(false)) {
      // For nobody that is connected. Where it has no place among the others, it is tried again.
      puts_away_ = !slow_.add({0, [this, &session] { return park_unless_attached(session); },
                               [](const MoveResult&) { return ""; }});
    }
    connections_.remove_if([](const Connection& connection) { return connection.broken; });
    if (orphaned(now)) {
      std::fputs("gpupool-worker: no lease and no node agent: ending\n", stderr);
      return 0;
    }

    now = boottime_ns();
    const int listener = now < accepts_from_ns_ ? -1 : listener_.fd();  // poll skips a negative one
    watched = {{listener, POLLIN, 0}, {wake_.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    for (const Connection& connection : connections_) watched.push_back({connection.socket.fd(), POLLIN, 0});
    if (::poll(watched.data(), watched.size(), next_timeout_ms(now, client)) <= 0) continue;

    if (watched[2].revents != 0 && told_to_end()) return 0;
    if (watched[1].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_.fd(), &count, sizeof(count));
      if (const int status = end_status_.load(); status != stays) return status;
    }
    std::size_t index = 3;
    for (Connection& connection : connections_) {
      if (watched[index++].revents != 0 && !read_from(connection, session, seat)) return 0;
    }
    if (watched[0].revents != 0) accept_one(boottime_ns());
  }
}

}  // namespace gpupool::worker
