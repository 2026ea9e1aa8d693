// What is said to who interrupts a call that waits for a worker.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "generated/wire/control.h"

namespace gpupool::client {

/// What each of the session's workers has answered; nothing: it did not, in time.
using Inquiries = std::vector<std::optional<wire::Inquiry>>;

/// The answer that says most about why a call waits; null: no worker has answered.
[[nodiscard]] const wire::Inquiry* most_telling(const Inquiries& answers);

/// One line without its end. `waited`: for how long the call has.
[[nodiscard]] std::string what_runs(const Inquiries& answers, std::chrono::milliseconds waited);

/// The same for programs: {"answers": bool, "work": "", "running", "draining" or "stopped", "kernel": text,
/// "seconds": number, "failure": CUresult, "failed_kernel": text, "awaits_turn": bool}.
[[nodiscard]] std::string as_json(const Inquiries& answers);

}  // namespace gpupool::client
