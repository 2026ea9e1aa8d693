#include "client/link/reply_demultiplexer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/mutex.h"
#include "generated/wire/control.h"
#include "shared_api/error_log.h"

namespace gpupool::client {

void ReplyDemultiplexer::expect(Ticket& ticket, std::uint64_t sequence) {
  const MutexLock lock(mutex_);
  ticket.reply_.sequence = sequence;
  if (lost_) ticket.state_ = Ticket::State::lost;
  ticket.next_ = first_;
  first_ = &ticket;
}

void ReplyDemultiplexer::unlink(Ticket& ticket) {
  for (Ticket** at = &first_; *at != nullptr; at = &(*at)->next_) {
    if (*at != &ticket) continue;
    *at = ticket.next_;
    return;
  }
}

void ReplyDemultiplexer::pass_lead_on() {
  if (paused_ || lost_) {
    lead_is_free_.notify_all();
    return;
  }
  // An owner that is awake, as it still sends its payload, takes the lead itself when it comes to wait.
  for (Ticket* at = first_; at != nullptr; at = at->next_) {
    if (at->state_ != Ticket::State::waiting || !at->asleep_) continue;
    at->asleep_ = false;
    at->wakes_.notify_one();
    return;
  }
  if (watching_ > 0) frame_read_.notify_all();
}

void ReplyDemultiplexer::failed(Read how) {
  hooks_.on_failure(connection_, how == Read::ended ? Failure::ended : Failure::senseless);
}

bool ReplyDemultiplexer::give_up(Ticket& ticket) {
  unlink(ticket);
  try {
    abandoned_.insert(ticket.reply_.sequence);
    return true;
  } catch (const std::bad_alloc&) {  // nobody could tell whose the reply is
    return false;
  }
}

ReplyDemultiplexer::Outcome ReplyDemultiplexer::wait(Ticket& mine, const Deadline& deadline) {
  const CallbacksLater later;
  MutexLock lock(mutex_);
  while (mine.state_ == Ticket::State::waiting || mine.state_ == Ticket::State::being_read) {
    bool in_time = true;
    if (may_lead() && mine.state_ == Ticket::State::waiting) {
      led_ = true, ++leads_;
      lock.unlock();
      in_time = lead(mine, deadline);
      lock.lock();
      led_ = false;
      pass_lead_on();
    } else {
      mine.asleep_ = true;
      if (deadline && mine.state_ == Ticket::State::waiting) {
        in_time = mine.wakes_.wait_until(mutex_, *deadline) == std::cv_status::no_timeout;
      } else {
        mine.wakes_.wait(mutex_);
      }
      mine.asleep_ = false;
    }
    if (in_time || mine.state_ != Ticket::State::waiting) continue;
    const bool left = give_up(mine);
    pass_lead_on();
    if (left) return Outcome::late;
    lock.unlock();
    failed(Read::senseless);
    return Outcome::lost;
  }
  unlink(mine);
  return mine.state_ == Ticket::State::answered ? Outcome::answered : Outcome::lost;
}

/// Reads until the reply of `mine` has come, or nothing can come any more. False: not before the deadline.
bool ReplyDemultiplexer::lead(const Ticket& mine, const Deadline& deadline) {
  while (true) {
    if (deadline && !receiver_->has_frame()) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
      const std::int64_t most = std::clamp<std::int64_t>(left.count(), 0, 1'000'000'000);
      if (!stream_->readable(static_cast<int>(most))) return false;
    }
    if (const Read how = read_frame(); how != Read::done) {
      failed(how);
      return true;
    }
    if (mine.state_ != Ticket::State::waiting) return true;  // only the leader moves it on
  }
}

ReplyDemultiplexer::Read ReplyDemultiplexer::read_frame() {
  const auto failed_reading = [this] { return receiver_->ended() ? Read::ended : Read::senseless; };
  wire::FrameHeader header{};
  std::span<const std::byte> body;
  bool good = false;
  try {
    if (!receiver_->receive(header, body)) return failed_reading();
    std::uint64_t payload = 0;
    if ((header.flags & wire::flag_bulk) != 0) {
      if (!wire::read_front(body.last(sizeof(payload)), payload)) return Read::senseless;
      body = body.first(body.size() - sizeof(payload));
    }
    good = (header.flags & wire::flag_reply) != 0 ? read_reply(header, body, payload)
                                                  : read_push(header, body, payload);
  } catch (const std::bad_alloc&) {
    // What is left of the frame is still on the stream. Over a new connection it comes again as a whole.
    return Read::ended;
  }
  if (!good) return failed_reading();
  const MutexLock lock(mutex_);
  if (watching_ > 0) frame_read_.notify_all();
  return Read::done;
}

bool ReplyDemultiplexer::read_push(const wire::FrameHeader& header, std::span<const std::byte> body,
                                   std::uint64_t payload) {
  if (header.message == static_cast<std::uint16_t>(wire::Control::acknowledged)) {
    wire::FrameNumber executed;
    if (header.sequence != 0 || payload != 0 || !wire::unpack(body, executed)) return false;
    hooks_.acknowledged(executed.number);
    return true;
  }
  const std::uint64_t taken = taken_.load();
  if (header.sequence != 0 && header.sequence <= taken) return receiver_->skip(payload);
  if (header.sequence > taken + 1) return false;
  if (header.message >= handlers_.size() || !handlers_[header.message] ||
      !handlers_[header.message](body, *receiver_, payload)) {
    return false;
  }
  if (header.sequence == 0) return true;
  taken_.store(header.sequence);
  untold_bytes_ += payload;
  if (++untold_pushes_ < tell_after_pushes && untold_bytes_ < tell_after_bytes) return true;
  untold_pushes_ = untold_bytes_ = 0;
  hooks_.tell_taken(header.sequence);
  return true;
}

bool ReplyDemultiplexer::read_reply(const wire::FrameHeader& header, std::span<const std::byte> body,
                                    std::uint64_t payload) {
  wire::ReplyHeader result{};
  if (!wire::read_front(body, result)) return false;
  body = body.subspan(sizeof(result));
  Ticket* owner = nullptr;
  {
    const MutexLock lock(mutex_);
    for (owner = first_; owner != nullptr; owner = owner->next_) {
      if (owner->reply_.sequence == header.sequence && owner->state_ == Ticket::State::waiting) break;
    }
    // An answer to nothing that was asked: the two ends no longer understand each other.
    if (owner == nullptr && abandoned_.erase(header.sequence) == 0) return false;
    if (owner != nullptr) owner->state_ = Ticket::State::being_read;
  }
  const auto whole = [&] {
    deferred.keep(result.deferred_error, result.deferred_message);
    hooks_.acknowledged(header.sequence);
  };
  if (owner == nullptr) {
    const bool skipped = receiver_->skip(payload);
    if (skipped) whole();
    return skipped;
  }
  bool good = false, memory = true;
  try {
    owner->reply_.header = result;
    owner->reply_.fields.assign(body.begin(), body.end());
    good = payload == 0 ||
           (owner->sink_ != nullptr ? owner->sink_->take(*receiver_, payload) : receiver_->skip(payload));
  } catch (const std::bad_alloc&) {
    memory = false;
  }
  if (good) whole();
  // The owner may be gone as soon as the lock is given up.
  const MutexLock lock(mutex_);
  if (good) {
    owner->state_ = Ticket::State::answered;
  } else {  // of a reply that was cut, the whole will come again
    owner->state_ = receiver_->ended() && memory && !lost_ ? Ticket::State::waiting : Ticket::State::lost;
  }
  owner->wakes_.notify_one();
  if (!memory) throw std::bad_alloc();
  return good;
}

void ReplyDemultiplexer::read_arrived() {
  constexpr int most = 64;  // frames; a worker that sends without end must not keep the caller
  const CallbacksLater later;
  MutexLock lock(mutex_);
  if (!may_lead()) return;
  led_ = true, ++leads_;
  lock.unlock();
  Read how = Read::done;
  int frames = 0;
  for (; how == Read::done && frames < most && (receiver_->has_frame() || stream_->readable(0)); ++frames)
    how = read_frame();
  // A program that asks in a loop whether its work is done never waits, and only waiting finds out.
  const auto now = std::chrono::steady_clock::now();
  if (frames == 0 && now >= next_look_) {
    next_look_ = now + look_interval;
    if (stream_->vanished()) how = Read::ended;
  }
  if (how != Read::done) failed(how);
  lock.lock();
  led_ = false;
  pass_lead_on();
}

bool ReplyDemultiplexer::read_until(const std::function<bool()>& done) {
  const MutexLock lock(mutex_);
  ++watching_;
  while (!lost_ && !done()) {
    if (!may_lead()) {
      frame_read_.wait(mutex_);
      continue;
    }
    led_ = true, ++leads_;
    const MutexUnlock unlocked(mutex_);
    const CallbacksLater later;
    if (const Read how = read_frame(); how != Read::done) failed(how);
    const MutexLock again(mutex_);
    led_ = false;
    pass_lead_on();
  }
  --watching_;
  const bool good = !lost_;
  pass_lead_on();
  return good;
}

void ReplyDemultiplexer::run_errand() {
  {
    const MutexLock lock(mutex_);
    errand_waits_ = true;
  }
  listener_wakes_.notify_one();
}

void ReplyDemultiplexer::listen(std::chrono::milliseconds quiet, const std::function<void()>& errand) {
  const MutexLock lock(mutex_);
  while (!lost_) {
    if (std::exchange(errand_waits_, false)) {
      const MutexUnlock unlocked(mutex_);
      const CallbacksLater later;
      errand();
      continue;
    }
    if (paused_ || found_end_) {  // go_on() tells of the next connection
      listener_wakes_.wait(mutex_);
      continue;
    }
    const std::uint64_t before = leads_;
    if (listener_wakes_.wait_for(mutex_, quiet) == std::cv_status::no_timeout) continue;
    if (leads_ != before || first_ != nullptr || watching_ > 0 || !may_lead() || errand_waits_) continue;
    led_ = true;
    const MutexUnlock unlocked(mutex_);
    const CallbacksLater later;
    const bool some =
        receiver_->has_frame() || (stream_->readable(wire::Stream::for_ever) && stream_->holds_unread());
    Read how = some ? read_frame() : Read::done;
    // More of the same burst is read at once. A frame in each `quiet` would hold up all that the worker has
    // to send.
    while (some && how == Read::done && left_alone() && more_comes()) how = read_frame();
    if (how != Read::done) failed(how);
    const MutexLock again(mutex_);
    led_ = false;
    // A peer that seems to have vanished may come back. Who needs it finds out; until then it is listened to.
    found_end_ = !some && stream_->hung_up();
    pass_lead_on();
  }
}

bool ReplyDemultiplexer::left_alone() {
  const MutexLock lock(mutex_);
  return first_ == nullptr && watching_ == 0 && !paused_ && !errand_waits_ && !lost_;
}

bool ReplyDemultiplexer::more_comes() {
  constexpr int burst_ms = 50;
  return receiver_->has_frame() || (stream_->readable(burst_ms) && stream_->holds_unread());
}

void ReplyDemultiplexer::lose() {
  const MutexLock lock(mutex_);
  lost_ = true;
  for (Ticket* at = first_; at != nullptr; at = at->next_) {
    if (at->state_ == Ticket::State::waiting) at->state_ = Ticket::State::lost;
    at->wakes_.notify_one();
  }
  frame_read_.notify_all();
  lead_is_free_.notify_all();
  listener_wakes_.notify_all();
}

void ReplyDemultiplexer::let_go() {
  MutexLock lock(mutex_);
  lead_is_free_.wait(mutex_, [this]() REQUIRES(mutex_) { return !led_; });
  receiver_.reset();
}

void ReplyDemultiplexer::pause(std::uint64_t connection) {
  const MutexLock lock(mutex_);
  if (connection == connection_) paused_ = true;
}

bool ReplyDemultiplexer::take_lead() {
  MutexLock lock(mutex_);
  paused_ = true;
  lead_is_free_.wait(mutex_, [this]() REQUIRES(mutex_) { return !led_ || lost_; });
  return !lost_;
}

wire::Receiver& ReplyDemultiplexer::read_from(wire::Stream& stream) {
  stream_ = &stream;
  receiver_.emplace(stream, buffer_bytes);
  untold_pushes_ = untold_bytes_ = 0;  // HELLO has told of all
  return *receiver_;
}

bool ReplyDemultiplexer::read_pushes(std::uint64_t through) {
  while (taken_.load() < through) {
    if (read_frame() != Read::done) return false;
  }
  return true;
}

std::vector<UnansweredAsk> ReplyDemultiplexer::unanswered(std::uint64_t received) {
  std::vector<UnansweredAsk> asks;
  const MutexLock lock(mutex_);
  for (const Ticket* at = first_; at != nullptr; at = at->next_) {
    if (at->state_ == Ticket::State::waiting && at->reply_.sequence <= received) {
      asks.push_back({at->reply_.sequence, at->lane_});
    }
  }
  return asks;
}

void ReplyDemultiplexer::refuse_waiting() try {
  const MutexLock lock(mutex_);
  for (Ticket* at = first_; at != nullptr; at = at->next_) {
    if (at->state_ != Ticket::State::waiting || at->lends_) continue;
    abandoned_.insert(at->reply_.sequence);
    at->reply_.fields.clear();
    at->reply_.header = {};
    at->reply_.header.status = wire::Status::not_attached;
    at->state_ = Ticket::State::answered;
    at->wakes_.notify_one();
  }
} catch (const std::bad_alloc&) {  // nobody could tell whose the reply is: they wait on
}

bool ReplyDemultiplexer::awaited() {
  const MutexLock lock(mutex_);
  return first_ != nullptr;
}

void ReplyDemultiplexer::go_on(std::uint64_t connection) {
  const MutexLock lock(mutex_);
  connection_ = connection;
  paused_ = found_end_ = false;
  pass_lead_on();
  frame_read_.notify_all();
  listener_wakes_.notify_all();
}

}  // namespace gpupool::client
