#include "worker/lease_office.h"

namespace gpupool::worker {
namespace {

constexpr std::uint64_t kMib = 1ULL << 20;

std::string ok(std::uint32_t epoch) {
  return "ok epoch=" + std::to_string(epoch);
}

std::string refused(std::uint32_t epoch, const std::string& reason) {
  return "refused epoch=" + std::to_string(epoch) + " reason=" + reason;
}

/// Whether the gate would take this grant; asked first, because limits must not move for a lease that is
/// refused.
LeaseAnswer foresee(const LeaseGate::View& view, std::uint32_t epoch) {
  if (epoch < view.epoch) return LeaseAnswer::past_epoch;
  if (epoch > view.epoch || view.state == LeaseState::attached) return LeaseAnswer::ok;
  return view.state == LeaseState::fenced ? LeaseAnswer::fenced : LeaseAnswer::past_epoch;
}

std::string answer(LeaseAnswer result, std::uint32_t epoch) {
  switch (result) {
    case LeaseAnswer::past_epoch:
      return refused(epoch, "past-epoch");
    case LeaseAnswer::fenced:
      return refused(epoch, "fenced");
    case LeaseAnswer::ok:
      break;
  }
  return ok(epoch);
}

}  // namespace

std::string apply_lease(WorkerState& state, const LeaseCommand& command, std::int64_t now_ns) {
  const LeaseAnswer foreseen = foresee(state.gate.view(now_ns), command.epoch);
  if (foreseen != LeaseAnswer::ok) return answer(foreseen, command.epoch);

  for (const ShareGrant& share : command.shares) {
    if (share.ordinal >= state.memory.size()) return refused(command.epoch, "bad-share");
  }
  std::vector<std::uint64_t> limits;
  for (const MemoryAccount& account : state.memory) limits.push_back(account.limit());
  for (const ShareGrant& share : command.shares) {
    MemoryAccount& account = state.memory[share.ordinal];
    if (account.resize(share.mib * kMib)) continue;
    const std::uint64_t used = account.used();
    // Only growth back to the old limit: it cannot fail, for the use is within it.
    for (const ShareGrant& undo : command.shares)
      (void)state.memory[undo.ordinal].resize(limits[undo.ordinal]);
    return refused(command.epoch, "in-use used_mib=" + std::to_string((used + kMib - 1) / kMib));
  }
  for (const ShareGrant& share : command.shares) state.milli[share.ordinal] = share.milli;
  return answer(state.gate.grant(command.epoch, command.deadline_ns, now_ns), command.epoch);
}

std::string apply_revoke(WorkerState& state, SessionExecutor& executor, const RevokeCommand& command,
                         int drain_ms, std::int64_t now_ns) {
  const LeaseGate::View view = state.gate.view(now_ns);
  if (view.state == LeaseState::attached && command.epoch >= view.epoch) (void)executor.drain(drain_ms);
  return answer(state.gate.revoke(command.epoch), command.epoch);
}

std::string stats_now(const WorkerState& state, bool client_connected, std::int64_t now_ns) {
  StatsLine line{state.gate.view(now_ns), client_connected, state.usage.snapshot(), {}};
  for (const MemoryAccount& account : state.memory) line.memory.push_back(account.view());
  return format_stats(line);
}

}  // namespace gpupool::worker
