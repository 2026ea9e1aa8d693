#include "client/lease/session_state.h"

namespace gpupool::client {
namespace {

constexpr const char* no_gpu =
    "No GPU is attached: put %%gpu 0.2 above the cell, or press Attach in the GPU sidebar.";
constexpr const char* gone =
    "The connection to the GPU worker is lost, and with it what was in GPU memory. Reset the GPU session to "
    "go on: %gpu reset, gpupool.reset(), or Reset in the GPU sidebar. The program's own variables stay.";
constexpr const char* ended_by_user =
    "The GPU session was ended: what was in GPU memory is lost, the program's own variables stay. The next "
    "time a GPU is attached, a new session begins.";

}  // namespace

bool SessionState::names_same_workers(const SessionFile& file) const {
  if (file.workers() != parts_.size()) return false;
  for (std::size_t n = 0; n < parts_.size(); ++n) {
    if (file.of_worker(n).session != parts_[n].session) return false;
  }
  return true;
}

bool SessionState::names_another_session(const SessionFile& file) const {
  for (std::size_t n = 0; n < file.workers(); ++n) {
    const auto& session = file.of_worker(n).session;
    for (const Part& part : parts_) {
      if (part.session == session) return false;
    }
  }
  return true;
}

bool SessionState::names_refused(const SessionFile& file) const {
  for (std::size_t n = 0; n < parts_.size(); ++n) {
    if (file.of_worker(n).epoch <= parts_[n].refused_epoch) return true;
  }
  return false;
}

SessionState::Step SessionState::refuse(const std::optional<SessionFile>& file, std::string message) {
  const std::uint64_t generation = file ? file->generation : 0;
  const bool first = logged_generation_ != generation;
  const bool told = file && file->told && message == file->message;
  logged_generation_ = generation;
  return {Step::Kind::refuse, std::move(message), first, told};
}

SessionState::Step SessionState::needs_worker(const std::optional<SessionFile>& file,
                                              const std::string& file_error) {
  if (state_ == State::attached) return {Step::Kind::ready, {}, false};
  if (!file) return refuse(file, file_error.empty() ? no_gpu : file_error);
  if (state_ == State::lost && file->session == parts_[0].session) {
    return refuse(file, file->state == FileState::closed && !file->message.empty() ? file->message
                        : ended_                                                   ? ended_by_user
                                                                                   : gone);
  }
  if (file->state != FileState::attached) return refuse(file, file->message.empty() ? no_gpu : file->message);
  // What this process had on the devices of the old session is gone (session_belongings.h).
  if (state_ == State::none || names_another_session(*file)) return {Step::Kind::connect, {}, false};
  if (state_ == State::lost || !names_same_workers(*file)) {
    return refuse(file,
                  "The GPU session was replaced by one that shares some of its workers. Attach a GPU again.");
  }
  if (names_refused(*file)) {
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
      if (file.state == FileState::closed || file.session != parts_[0].session) return false;
      return file.state != FileState::attached || names_refused(file);
    case State::attached:
      return false;
    case State::lost:
      // Only where the program has been told that it is over, by the user or by the pool.
      return file.state != FileState::attached && (ended_ || file.state == FileState::closed);
  }
  return false;
}

SessionState::Prospect SessionState::prospect(const SessionFile& file) const {
  if (state_ == State::attached || state_ == State::lost) return Prospect::none;
  // What this process has on the device belongs to its session: another one is no way to go on.
  if (state_ == State::parked && file.session != parts_[0].session) return Prospect::none;
  if (file.state == FileState::waiting) return Prospect::sure;
  const bool refused = state_ == State::parked && file.state == FileState::attached &&
                       names_same_workers(file) && names_refused(file);
  return refused && file.resumes ? Prospect::soon : Prospect::none;
}

void SessionState::connected(const SessionFile& file) {
  ended_ = false;
  parts_.assign(file.workers(), Part{});
  for (std::size_t n = 0; n < parts_.size(); ++n) parts_[n].session = file.of_worker(n).session;
  leased(file);
}

void SessionState::leased(const SessionFile& file) {
  state_ = State::attached;
  for (std::size_t n = 0; n < parts_.size(); ++n) parts_[n].epoch = file.of_worker(n).epoch;
}

void SessionState::refused(std::uint32_t epoch, std::size_t worker) {
  if (state_ == State::lost || worker >= parts_.size()) return;
  Part& part = parts_[worker];
  if (epoch > part.refused_epoch) part.refused_epoch = epoch;
  if (state_ == State::attached && epoch >= part.epoch) state_ = State::parked;
}

void SessionState::detached() {
  if (state_ == State::attached) state_ = State::parked;
}

void SessionState::lost() {
  state_ = State::lost;
}

void SessionState::ended() {
  state_ = State::lost;
  ended_ = true;
}

}  // namespace gpupool::client
