// Carries out the node agent's commands on the worker's state. No sockets: text in, text out.
#pragma once

#include <cstdint>
#include <string>

#include "worker/control_line.h"
#include "worker/session_contract.h"

namespace gpupool::worker {

/// Grants, renews or resizes: memory first, then the gate, so that nothing changes when either refuses.
/// Returns `ok epoch=N` or `refused epoch=N reason=past-epoch|fenced|in-use|bad-share [used_mib=M]`.
[[nodiscard]] std::string apply_lease(WorkerState& state, const LeaseCommand& command, std::int64_t now_ns);

/// Drains for at most `drain_ms` when `epoch` is the lease in force, then shuts the gate.
[[nodiscard]] std::string apply_revoke(WorkerState& state, SessionExecutor& executor,
                                       const RevokeCommand& command, int drain_ms, std::int64_t now_ns);

/// One `stats` line of this moment.
[[nodiscard]] std::string stats_now(const WorkerState& state, bool client_connected, std::int64_t now_ns);

}  // namespace gpupool::worker
