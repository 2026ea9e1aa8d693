// Carries out the node agent's commands on the worker's state. No sockets: text in, text out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/lease/worker_state.h"
#include "worker/process/control_line.h"

namespace gpupool::worker {

/// Grants, renews or resizes: memory first, then the gate, so that nothing changes when either refuses.
/// Returns `ok epoch=N` or `refused epoch=N reason=past-epoch|fenced|in-use|bad-share|mps-share
/// [used_mib=M]`.
[[nodiscard]] std::string apply_lease(WorkerState& state, const LeaseCommand& command, std::int64_t now_ns);

/// What apply_lease would answer now, where it would refuse; nothing else changes. Asked before memory is
/// brought back for a lease.
[[nodiscard]] std::optional<std::string> foresee_refusal(WorkerState& state, const LeaseCommand& command,
                                                         std::int64_t now_ns);

/// The shares that the command makes smaller, as the client counts them: it is asked to make do with them
/// before.
[[nodiscard]] std::vector<ShareWish> shrunk_shares(const WorkerState& state, const LeaseCommand& command);

/// Whether more is in use than the command's shares hold.
[[nodiscard]] bool exceeds_shares(const WorkerState& state, const LeaseCommand& command);

/// As foresee_refusal, but for what is in use: a client that is asked may give some of that back.
[[nodiscard]] std::optional<std::string> foresee_gate_refusal(const WorkerState& state,
                                                              const LeaseCommand& command,
                                                              std::int64_t now_ns);

/// Whether the command names other devices than those that the session has; nothing for a device that it
/// does not have.
[[nodiscard]] std::optional<bool> changes_devices(const WorkerState& state, const LeaseCommand& command);

/// The answer to a lease for which the memory had to be brought back. Where that took longer than the lease
/// lasts (`late`), the epoch is not used up: the agent repeats the command with another deadline.
[[nodiscard]] std::string conclude_lease(WorkerState& state, const LeaseCommand& command,
                                         const MoveResult& resumed, std::int64_t now_ns);

/// Whether the memory may be moved away for this command: a refusal, or nothing.
[[nodiscard]] std::optional<std::string> foresee_park_refusal(const WorkerState& state,
                                                              const ParkCommand& command,
                                                              std::int64_t now_ns);
[[nodiscard]] std::string conclude_park(const ParkCommand& command, const MoveResult& parked);
[[nodiscard]] std::string conclude_export(const WorkerState& state, const MoveResult& exported,
                                          std::int64_t now_ns);

/// Shuts the gate. lease_end.h sees before to all that the lease left behind.
[[nodiscard]] std::string apply_revoke(WorkerState& state, const RevokeCommand& command);
/// The answer to a revocation that has waited for a lease's end. `barred` is the gate's word on the latest
/// epoch that was revoked meanwhile.
[[nodiscard]] std::string conclude_revoke(const RevokeCommand& command, LeaseAnswer barred);

/// One `stats` line of this moment.
[[nodiscard]] std::string stats_now(const WorkerState& state, const MemoryReport& place,
                                    bool client_connected, std::int64_t now_ns);

}  // namespace gpupool::worker
