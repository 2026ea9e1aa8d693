#include "worker/process/lease_office.h"

#include <algorithm>

namespace gpupool::worker {
namespace {

constexpr std::uint64_t bytes_per_mib = 1ULL << 20;

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
  if (epoch > view.epoch || view.state == LeaseState::attached || view.unserved) return LeaseAnswer::ok;
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

std::string in_use(std::uint32_t epoch, std::uint64_t used) {
  return refused(epoch, "in-use used_mib=" + std::to_string((used + bytes_per_mib - 1) / bytes_per_mib));
}

}  // namespace

std::optional<std::string> foresee_gate_refusal(const WorkerState& state, const LeaseCommand& command,
                                                std::int64_t now_ns) {
  const LeaseAnswer foreseen = foresee(state.gate.view(now_ns), command.epoch);
  if (foreseen != LeaseAnswer::ok) return answer(foreseen, command.epoch);
  for (const ShareGrant& share : command.shares) {
    if (share.ordinal >= state.memory.size()) return refused(command.epoch, "bad-share");
    // A process keeps the part of the device that MPS gave it at its start.
    if (state.mps == Mps::partition && share.milli != state.milli[share.ordinal])
      return refused(command.epoch, "mps-share");
  }
  return std::nullopt;
}

std::vector<ShareWish> shrunk_shares(const WorkerState& state, const LeaseCommand& command) {
  std::vector<ShareWish> wishes;
  for (const ShareGrant& share : command.shares) {
    if (share.ordinal >= state.memory.size()) continue;
    const MemoryAccount& account = state.memory[share.ordinal];
    if (share.mib * bytes_per_mib < account.limit())
      wishes.push_back({share.ordinal, account.room_of(share.mib * bytes_per_mib)});
  }
  return wishes;
}

bool exceeds_shares(const WorkerState& state, const LeaseCommand& command) {
  return std::ranges::any_of(command.shares, [&](const ShareGrant& share) {
    return share.ordinal < state.memory.size() &&
           share.mib * bytes_per_mib < state.memory[share.ordinal].used();
  });
}

std::optional<std::string> foresee_refusal(WorkerState& state, const LeaseCommand& command,
                                           std::int64_t now_ns) {
  if (auto refusal = foresee_gate_refusal(state, command, now_ns)) return refusal;
  for (const ShareGrant& share : command.shares) {
    const std::uint64_t used = state.memory[share.ordinal].used();
    if (share.mib * bytes_per_mib < used) return in_use(command.epoch, used);
  }
  return std::nullopt;
}

std::string apply_lease(WorkerState& state, const LeaseCommand& command, std::int64_t now_ns) {
  if (const auto refusal = foresee_refusal(state, command, now_ns)) return *refusal;
  std::vector<std::uint64_t> limits;
  for (const MemoryAccount& account : state.memory) limits.push_back(account.limit());
  for (const ShareGrant& share : command.shares) {
    MemoryAccount& account = state.memory[share.ordinal];
    if (account.resize(share.mib * bytes_per_mib)) continue;
    const std::uint64_t used = account.used();
    // Only growth back to the old limit: it cannot fail, for the use is within it.
    for (const ShareGrant& undo : command.shares)
      (void)state.memory[undo.ordinal].resize(limits[undo.ordinal]);
    return in_use(command.epoch, used);
  }
  for (const ShareGrant& share : command.shares) state.milli[share.ordinal] = share.milli;
  return answer(state.gate.grant(command.epoch, command.deadline_ns, now_ns), command.epoch);
}

std::optional<bool> changes_devices(const WorkerState& state, const LeaseCommand& command) {
  bool changes = false;
  for (const DeviceChange& change : command.devices) {
    if (change.ordinal >= state.devices.size()) return std::nullopt;
    changes = changes || state.devices[change.ordinal].uuid != change.uuid;
  }
  return changes;
}

std::string conclude_lease(WorkerState& state, const LeaseCommand& command, const MoveResult& resumed,
                           std::int64_t now_ns) {
  if (!resumed.refusal.empty()) return refused(command.epoch, resumed.refusal);
  for (const DeviceChange& change : command.devices) state.devices[change.ordinal].uuid = change.uuid;
  if (now_ns >= command.deadline_ns) return refused(command.epoch, "late");
  return apply_lease(state, command, now_ns);
}

std::optional<std::string> foresee_park_refusal(const WorkerState& state, const ParkCommand& command,
                                                std::int64_t now_ns) {
  const LeaseGate::View view = state.gate.view(now_ns);
  if (view.state == LeaseState::attached) return refused(command.epoch, "attached");
  if (command.epoch < view.epoch) return refused(command.epoch, "past-epoch");
  return std::nullopt;
}

std::string conclude_park(const ParkCommand& command, const MoveResult& parked) {
  if (!parked.refusal.empty()) return refused(command.epoch, parked.refusal);
  return ok(command.epoch) + " bytes=" + std::to_string(parked.bytes);
}

std::string conclude_export(const WorkerState& state, const MoveResult& exported, std::int64_t now_ns) {
  const std::uint32_t epoch = state.gate.view(now_ns).epoch;
  if (!exported.refusal.empty()) return refused(epoch, exported.refusal);
  return ok(epoch) + " bytes=" + std::to_string(exported.bytes) +
         " chunks=" + std::to_string(exported.chunks);
}

std::string apply_revoke(WorkerState& state, const RevokeCommand& command) {
  return answer(state.gate.revoke(command.epoch), command.epoch);
}

std::string conclude_revoke(const RevokeCommand& command, LeaseAnswer barred) {
  return answer(barred, command.epoch);
}

std::string stats_now(const WorkerState& state, const MemoryReport& place, bool client_connected,
                      std::int64_t now_ns) {
  StatsLine line{state.gate.view(now_ns),  client_connected,  state.usage.snapshot(), {},    place,
                 state.enforcement.load(), state.work.view(), state.work.failure(),   now_ns};
  for (const MemoryAccount& account : state.memory) line.memory.push_back(account.view());
  return format_stats(line);
}

}  // namespace gpupool::worker
