#include "client/process/interrupt_words.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/decimal.h"

namespace gpupool::client {
namespace {

constexpr const char* way_on =
    " Interrupt again to end its GPU session: arrays in GPU memory are lost, Python variables stay.";

/// As a worker's tells of them: anything else could not be said on a terminal.
std::string printable(std::string_view name) {
  std::string text;
  for (const char c : name)
    text += std::isgraph(static_cast<unsigned char>(c)) != 0 && c != '"' && c != '\\' ? c : '?';
  return text;
}

std::string seconds(std::uint64_t milliseconds) {
  return std::to_string(milliseconds / 1000) + " s";
}

std::string since(const wire::Inquiry& work) {
  return " (since " + seconds(work.milliseconds) + ")";
}

std::string named(const wire::Inquiry& work) {
  return work.kernel.empty() ? "a copy, a fill or a kernel without a name"
                             : "kernel \"" + printable(work.kernel) + "\"";
}

/// How much an answer says about why a call waits.
int weight(const wire::Inquiry& one) {
  switch (one.state) {
    case wire::WorkState::running:
    case wire::WorkState::draining:
      return 3;
    case wire::WorkState::stopped:
      return 2;
    case wire::WorkState::none:
      break;
  }
  return one.awaits_turn ? 1 : 0;
}

const char* word(wire::WorkState state) {
  switch (state) {
    case wire::WorkState::running:
      return "running";
    case wire::WorkState::draining:
      return "draining";
    case wire::WorkState::stopped:
      return "stopped";
    case wire::WorkState::none:
      break;
  }
  return "";
}

}  // namespace

const wire::Inquiry* most_telling(const Inquiries& answers) {
  const wire::Inquiry* found = nullptr;
  for (const auto& one : answers) {
    if (one && (found == nullptr || weight(*one) > weight(*found))) found = &*one;
  }
  return found;
}

std::string what_runs(const Inquiries& answers, std::chrono::milliseconds waited) {
  const std::string for_long = seconds(static_cast<std::uint64_t>(std::max<std::int64_t>(waited.count(), 0)));
  const wire::Inquiry* const work = most_telling(answers);
  const bool all_answer =
      std::all_of(answers.begin(), answers.end(), [](const auto& one) { return one.has_value(); });
  if (work == nullptr || (!all_answer && weight(*work) == 0)) {
    return "The GPU worker does not answer; this call has waited for " + for_long + "." + way_on;
  }
  switch (work->state) {
    case wire::WorkState::running:
      return "The GPU still runs " + named(*work) + since(*work) + "." + way_on;
    case wire::WorkState::draining:
      return "The GPU still runs " + named(*work) + since(*work) +
             ", although the lease has ended: it is stopped soon." + way_on;
    case wire::WorkState::stopped:
      return "The lease has ended, and " + named(*work) + " is stopped" + since(*work) +
             ": it goes on under the next lease." + way_on;
    case wire::WorkState::none:
      break;
  }
  if (work->awaits_turn) {
    return "Another session has the turn on the GPU; this call has waited for " + for_long + "." + way_on;
  }
  return "The GPU worker has not finished this call, which has waited for " + for_long +
         ", and knows of no kernel that runs." + way_on;
}

std::string as_json(const Inquiries& answers) {
  const wire::Inquiry* const work = most_telling(answers);
  const wire::Inquiry known = work != nullptr ? *work : wire::Inquiry{};
  const wire::Inquiry* failed = nullptr;
  for (const auto& one : answers) {
    if (one && one->failure != 0 && failed == nullptr) failed = &*one;
  }
  return std::string("{\"answers\":") + (work != nullptr ? "true" : "false") + ",\"work\":\"" +
         word(known.state) + "\",\"kernel\":\"" + printable(known.kernel) +
         "\",\"seconds\":" + decimal(static_cast<double>(known.milliseconds) * 1e-3, 3) +
         ",\"failure\":" + std::to_string(failed != nullptr ? failed->failure : 0) + ",\"failed_kernel\":\"" +
         printable(failed != nullptr ? failed->failed_kernel : "") +
         "\",\"awaits_turn\":" + (known.awaits_turn ? "true" : "false") + "}";
}

}  // namespace gpupool::client
