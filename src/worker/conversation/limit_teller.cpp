#include "worker/conversation/limit_teller.h"

#include <algorithm>

#include "wire/bytes.h"
#include "wire/frame.h"

namespace gpupool::worker {

void LimitTeller::begin(std::vector<std::uint64_t> rooms) {
  const std::lock_guard lock(mutex_);
  told_.clear();
  for (const std::uint64_t room : rooms) told_.push_back({room, {}, 0, false});
  answers_.notify_all();
}

void LimitTeller::doubt() {
  const std::lock_guard lock(mutex_);
  for (Told& told : told_) told = {};
  answers_.notify_all();
}

std::optional<wire::ShareLimit> LimitTeller::next(const std::deque<MemoryAccount>& accounts) {
  const std::lock_guard lock(mutex_);
  if (told_.size() < accounts.size()) told_.resize(accounts.size());
  for (std::size_t n = 0; n < accounts.size(); ++n) {
    Told& told = told_[n];
    const auto device = static_cast<std::uint32_t>(n);
    if (told.wish) {
      // The old size said now would take the wish back.
      if (told.said || told.number == 0) continue;
      told.said = true;
      told.room.reset();  // until the answer it may be the one or the other
      return wire::ShareLimit{device, *told.wish, told.number};
    }
    const std::uint64_t room = accounts[n].room();
    if (told.room == room) continue;
    told.room = room;
    return wire::ShareLimit{device, room, 0};
  }
  return std::nullopt;
}

void LimitTeller::tell(const std::deque<MemoryAccount>& accounts, Outlet& outlet) {
  const std::lock_guard telling(telling_);
  while (const auto limit = next(accounts)) {
    if (outlet.push(wire::Control::share_limit, wire::packed(*limit).bytes())) continue;
    const std::lock_guard lock(mutex_);  // nobody is there; the next client is told everything anew
    if (limit->device >= told_.size()) return;
    told_[limit->device].room.reset();
    told_[limit->device].number = 0;
    answers_.notify_all();
    return;
  }
}

void LimitTeller::wish(const std::vector<ShareWish>& wishes) {
  const std::lock_guard lock(mutex_);
  for (const ShareWish& wish : wishes) {
    if (wish.ordinal >= told_.size()) continue;
    if (++last_number_ == 0) ++last_number_;
    Told& told = told_[wish.ordinal];
    told.wish = wish.bytes;
    told.number = last_number_;
    told.said = false;
  }
}

bool LimitTeller::await_answers(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return answers_.wait_for(lock, limit, [this] {
    return std::none_of(told_.begin(), told_.end(), [](const Told& told) { return told.number != 0; });
  });
}

void LimitTeller::answered(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  for (Told& told : told_) {
    if (number != 0 && told.said && told.number == number) told.number = 0;
  }
  answers_.notify_all();
}

void LimitTeller::decided() {
  const std::lock_guard lock(mutex_);
  for (Told& told : told_) {
    told.wish.reset();
    told.number = 0;
    told.said = false;
  }
}

}  // namespace gpupool::worker
