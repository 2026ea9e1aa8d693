#include "client/reply_desk.h"

#include <algorithm>
#include <new>

namespace gpupool::client {

void ReplyDesk::expect(Ticket& ticket, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  ticket.reply_.sequence = sequence;
  if (lost_) ticket.state_ = Ticket::State::lost;
  ticket.next_ = first_;
  first_ = &ticket;
}

void ReplyDesk::unlink(Ticket& ticket) {
  for (Ticket** at = &first_; *at != nullptr; at = &(*at)->next_) {
    if (*at != &ticket) continue;
    *at = ticket.next_;
    return;
  }
}

void ReplyDesk::pass_lead_on() {
  for (Ticket* at = first_; at != nullptr; at = at->next_) {
    if (at->state_ != Ticket::State::waiting) continue;
    at->wakes_.notify_one();
    return;
  }
  if (watching_ > 0) frame_read_.notify_all();
}

bool ReplyDesk::give_up(Ticket& ticket) {
  unlink(ticket);
  try {
    abandoned_.insert(ticket.reply_.sequence);
    return true;
  } catch (const std::bad_alloc&) {  // nobody could tell whose the reply is
    return false;
  }
}

ReplyDesk::Outcome ReplyDesk::wait(Ticket& mine, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  while (mine.state_ == Ticket::State::waiting || mine.state_ == Ticket::State::being_read) {
    bool in_time = true;
    if (!led_ && !lost_ && mine.state_ == Ticket::State::waiting) {
      led_ = true;
      lock.unlock();
      in_time = lead(mine, deadline);
      lock.lock();
      led_ = false;
      pass_lead_on();
    } else if (deadline && mine.state_ == Ticket::State::waiting) {
      in_time = mine.wakes_.wait_until(lock, *deadline) == std::cv_status::no_timeout;
    } else {
      mine.wakes_.wait(lock);
    }
    if (in_time || mine.state_ != Ticket::State::waiting) continue;
    const bool left = give_up(mine);
    pass_lead_on();
    if (left) return Outcome::late;
    lock.unlock();
    on_failure_();
    return Outcome::lost;
  }
  unlink(mine);
  return mine.state_ == Ticket::State::answered ? Outcome::answered : Outcome::lost;
}

/// Reads until the reply of `mine` has come, or nothing can come any more. False: not before the deadline.
bool ReplyDesk::lead(const Ticket& mine, const Deadline& deadline) {
  while (true) {
    if (deadline && !receiver_.has_frame()) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
      const std::int64_t most = std::clamp<std::int64_t>(left.count(), 0, 1'000'000'000);
      if (!stream_.readable(static_cast<int>(most))) return false;
    }
    if (!read_frame()) {
      on_failure_();
      return true;
    }
    if (mine.state_ != Ticket::State::waiting) return true;  // only the leader moves it on
  }
}

bool ReplyDesk::read_frame() {
  wire::FrameHeader header{};
  std::span<const std::byte> body;
  if (!receiver_.receive(header, body)) return false;
  std::uint64_t payload = 0;
  if ((header.flags & wire::flag_bulk) != 0) {
    if (!wire::read_front(body.last(sizeof(payload)), payload)) return false;
    body = body.first(body.size() - sizeof(payload));
  }
  bool good = false;
  try {
    if ((header.flags & wire::flag_reply) != 0) {
      good = read_reply(header, body, payload);
    } else if (header.message < handlers_.size() && handlers_[header.message]) {
      good = handlers_[header.message](body, receiver_, payload);
      const std::lock_guard lock(mutex_);
      if (watching_ > 0) frame_read_.notify_all();
    }
  } catch (const std::bad_alloc&) {  // what is left of the frame is still on the stream
  }
  return good;
}

bool ReplyDesk::read_reply(const wire::FrameHeader& header, std::span<const std::byte> body,
                           std::uint64_t payload) {
  wire::ReplyHeader result{};
  if (!wire::read_front(body, result)) return false;
  body = body.subspan(sizeof(result));
  deferred.keep(result.deferred_error, result.deferred_message);
  Ticket* owner = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (owner = first_; owner != nullptr; owner = owner->next_) {
      if (owner->reply_.sequence == header.sequence && owner->state_ == Ticket::State::waiting) break;
    }
    // An answer to nothing that was asked: the two ends no longer understand each other.
    if (owner == nullptr && abandoned_.erase(header.sequence) == 0) return false;
    if (owner != nullptr) owner->state_ = Ticket::State::being_read;
  }
  if (owner == nullptr) return receiver_.skip(payload);
  bool good = false;
  try {
    owner->reply_.header = result;
    owner->reply_.fields.assign(body.begin(), body.end());
    good = payload == 0 ||
           (owner->sink_ != nullptr ? owner->sink_->take(receiver_, payload) : receiver_.skip(payload));
  } catch (const std::bad_alloc&) {
  }
  // The owner may be gone as soon as the lock is given up.
  const std::lock_guard lock(mutex_);
  owner->state_ = good ? Ticket::State::answered : Ticket::State::lost;
  owner->wakes_.notify_one();
  return good;
}

void ReplyDesk::read_arrived() {
  constexpr int most = 64;  // frames; a worker that sends without end must not keep the caller
  std::unique_lock lock(mutex_);
  if (led_ || lost_) return;
  led_ = true;
  lock.unlock();
  bool good = true;
  for (int n = 0; good && n < most && (receiver_.has_frame() || stream_.readable(0)); ++n)
    good = read_frame();
  if (!good) on_failure_();
  lock.lock();
  led_ = false;
  pass_lead_on();
}

bool ReplyDesk::read_until(const std::function<bool()>& done) {
  std::unique_lock lock(mutex_);
  ++watching_;
  while (!lost_ && !done()) {
    if (led_) {
      frame_read_.wait(lock);
      continue;
    }
    led_ = true;
    lock.unlock();
    if (!read_frame()) on_failure_();
    lock.lock();
    led_ = false;
    pass_lead_on();
  }
  --watching_;
  const bool good = !lost_;
  pass_lead_on();
  return good;
}

void ReplyDesk::lose() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
  for (Ticket* at = first_; at != nullptr; at = at->next_) {
    if (at->state_ == Ticket::State::waiting) at->state_ = Ticket::State::lost;
    at->wakes_.notify_one();
  }
  frame_read_.notify_all();
}

}  // namespace gpupool::client
