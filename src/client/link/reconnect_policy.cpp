#include "client/link/reconnect_policy.h"

#include <algorithm>
#include <utility>

namespace gpupool::client {

ReconnectPolicy::Step ReconnectPolicy::next(const std::optional<SessionFile>& file, Result last,
                                            Clock::time_point now) {
  const auto give_up = [](std::string why) { return Step{Step::Kind::give_up, {}, {}, std::move(why)}; };
  if (last == Result::unknown) return give_up("the GPU worker does not know this process's session any more");
  if (file && file->state == FileState::closed) {
    Step closed = give_up("the GPU session was closed");
    closed.told = file->told;
    return closed;
  }
  if (file && file->state == FileState::attached && file->session != session_) {
    return give_up("the GPU session was replaced by another one");
  }
  const bool attached = !file || file->state == FileState::attached;
  if (file && file->session == session_ && !file->address.empty() && file->address != address_) {
    address_ = file->address;  // the session has moved: nothing is known of the new place
    refused_since_.reset();
    wait_ = Duration{0};
    waited_ = true;
    last = Result::none;
  }
  if (attached && !std::exchange(attached_, attached)) {  // that it was in vain before the lease says nothing
    resting_ = false;
    since_ = now;
    refused_since_.reset();
    waited_ = true;
    last = Result::none;
  }
  attached_ = attached;
  if (last == Result::refused) {
    if (!refused_since_) refused_since_ = now;
  } else if (last == Result::failed) {
    refused_since_.reset();
  }
  const bool nobody_there = refused_since_ && now - *refused_since_ >= dead_after;
  if (nobody_there && attached) return give_up("the GPU worker is gone");
  if (nobody_there || now - since_ >= limit_) {
    resting_ = !attached;
    if (resting_) return {Step::Kind::rest, {}, {}, {}};
    return give_up("the GPU worker could not be reached again");
  }
  const auto left = std::chrono::duration_cast<Duration>(limit_ - (now - since_)) + Duration{1};
  if (waited_) {
    waited_ = false;
    return {Step::Kind::dial, address_, left, {}};
  }
  waited_ = true;
  wait_ = std::clamp(wait_ * 2, first_wait, longest_wait);
  return {Step::Kind::wait, {}, std::min(wait_, left), {}};
}

void ReconnectPolicy::broken(Clock::time_point now) {
  refused_since_.reset();
  const bool settled = now - connected_ >= settled_after;
  waited_ = settled;  // one that breaks again and again is not tried without a pause
  if (!settled) return;
  since_ = now;
  wait_ = Duration{0};
}

void ReconnectPolicy::wanted(Clock::time_point now) {
  if (std::exchange(resting_, false)) {
    since_ = now;
    refused_since_.reset();
  }
  waited_ = true;
}

}  // namespace gpupool::client
