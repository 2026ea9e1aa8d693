#include "client/session_state.h"

namespace gpupool::client {
namespace {

constexpr const char* no_gpu =
    "No GPU is attached: put %%gpu 0.2 above the cell, or press Attach in the GPU sidebar.";
constexpr const char* gone =
    "The connection to the GPU worker is lost, and with it what was on the device. Restart the kernel to "
    "start afresh.";

}  // namespace

SessionState::Step SessionState::refuse(const std::optional<SessionFile>& file, std::string message) {
  const std::uint64_t generation = file ? file->generation : 0;
  const bool first = logged_generation_ != generation;
  logged_generation_ = generation;
  return {Step::Kind::refuse, std::move(message), first};
}

SessionState::Step SessionState::needs_worker(const std::optional<SessionFile>& file,
                                              const std::string& file_error) {
  if (state_ == State::attached) return {Step::Kind::ready, {}, false};
  if (!file) return refuse(file, file_error.empty() ? no_gpu : file_error);
  if (state_ == State::lost && file->session == session_) {
    return refuse(file, file->state == FileState::closed && !file->message.empty() ? file->message : gone);
  }
  if (file->state != FileState::attached) return refuse(file, file->message.empty() ? no_gpu : file->message);
  if (state_ == State::lost) {
    return refuse(
        file, "This process belongs to a GPU session that has ended. Restart the kernel to use the new one.");
  }
  if (state_ == State::none) return {Step::Kind::connect, {}, false};
  if (file->session != session_) {
    return refuse(file, "The GPU session was replaced by another one. Restart the kernel to use it.");
  }
  if (file->epoch <= refused_epoch_) {
    return refuse(file, file->message.empty()
                            ? "The GPU worker refuses this lease: it ended or was not renewed in time."
                            : file->message);
  }
  return {Step::Kind::lease, {}, false};
}

bool SessionState::wants_lease(const SessionFile& file) const {
  switch (state_) {
    case State::none:
      return file.state != FileState::attached;
    case State::parked:
      // What this process has on the device belongs to its session: another one is no way to go on.
      if (file.state == FileState::closed || file.session != session_) return false;
      return file.state != FileState::attached || file.epoch <= refused_epoch_;
    case State::attached:
    case State::lost:
      return false;
  }
  return false;
}

void SessionState::connected(const SessionFile& file) {
  session_ = file.session;
  leased(file);
}

void SessionState::leased(const SessionFile& file) {
  state_ = State::attached;
  epoch_ = file.epoch;
}

void SessionState::refused(std::uint32_t epoch) {
  if (state_ == State::lost) return;
  if (epoch > refused_epoch_) refused_epoch_ = epoch;
  if (state_ == State::attached && epoch >= epoch_) state_ = State::parked;
}

void SessionState::detached() {
  if (state_ == State::attached) state_ = State::parked;
}

void SessionState::lost() {
  state_ = State::lost;
}

}  // namespace gpupool::client
