#include "worker/image/session_journal.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "wire/frame.h"

namespace gpupool::worker {

void SessionJournal::note(std::uint16_t message, std::uint32_t lane, std::uint64_t context,
                          std::span<const std::byte> body, const HandleTable& handles) {
  const MoveRule& rule = move_rules[message - wire::first_call];
  if (rule.names == nullptr) return;
  Call call{message, rule.obstacle, lane, context, {}, {}};
  if (!rule.names(body, call.names)) return;
  if (rule.obstacle == MoveObstacle::none) call.body.assign(body.begin(), body.end());
  note(std::move(call), handles);
}

void SessionJournal::note(Call call, const HandleTable& handles) {
  if (in_the_way_ == MoveObstacle::none) in_the_way_ = call.obstacle;
  calls_.push_back(std::move(call));
  if (calls_.size() >= prune_at_) prune(handles);
}

/// From the newest to the oldest: a call that a later one replaces, or whose handle a later one has given to
/// another object, counts no more.
void SessionJournal::prune(const HandleTable& handles) {
  std::unordered_set<std::uint64_t> made;
  std::set<std::tuple<std::uint16_t, std::uint32_t, std::uint64_t, std::string>> same;
  std::vector<Call> kept;
  in_the_way_ = MoveObstacle::none;
  for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
    const MoveNames& names = call->names;
    bool counts = std::all_of(names.handles.begin(), names.handles.end(), [&](std::uint64_t handle) {
      return handles.alive(handle) && !made.contains(handle);
    });
    // An object outlives the context in which it was made, if it is still there; a setting does not.
    if (names.made == 0 && !handles.alive(call->context)) counts = false;
    if (counts && names.replaces) {
      const bool of_thread = std::find(names.handles.begin(), names.handles.end(), 2) != names.handles.end();
      counts = same.emplace(call->message, of_thread ? call->lane : 0, call->context, names.same).second;
    }
    if (counts && names.made != 0) made.insert(names.made);
    if (!counts) continue;
    if (call->obstacle != MoveObstacle::none) in_the_way_ = call->obstacle;
    kept.push_back(std::move(*call));
  }
  std::reverse(kept.begin(), kept.end());
  calls_ = std::move(kept);
  prune_at_ = std::max(least_prune, 2 * calls_.size());
}

const std::vector<SessionJournal::Call>& SessionJournal::calls(const HandleTable& handles) {
  prune(handles);
  return calls_;
}

MoveObstacle SessionJournal::obstacle(const HandleTable& handles, bool thorough) {
  for (auto kind = 1; kind < static_cast<int>(wire::Kind::count); ++kind) {
    const auto the_kind = static_cast<wire::Kind>(kind);
    if (const MoveObstacle found = obstacle_of(the_kind);
        found != MoveObstacle::none && handles.count(the_kind) != 0) {
      return found;
    }
  }
  if (thorough && in_the_way_ != MoveObstacle::none) prune(handles);
  return in_the_way_;
}

}  // namespace gpupool::worker
