#include "worker/conversation/outlet.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "generated/wire/control.h"

namespace gpupool::worker {
namespace {

std::vector<std::byte> frame_of(wire::Control message, std::uint64_t number,
                                std::span<const std::byte> fields, std::uint64_t payload) {
  wire::FrameHeader header{};
  header.length =
      static_cast<std::uint32_t>(sizeof(header) + fields.size() + (payload > 0 ? sizeof(payload) : 0));
  header.message = static_cast<std::uint16_t>(message);
  header.flags = payload > 0 ? wire::flag_bulk : 0;
  header.sequence = number;
  std::vector<std::byte> frame;
  frame.reserve(header.length);
  const auto append = [&](const void* data, std::size_t size) {
    const auto* const at = static_cast<const std::byte*>(data);
    frame.insert(frame.end(), at, at + size);
  };
  append(&header, sizeof(header));
  append(fields.data(), fields.size());
  if (payload > 0) append(&payload, sizeof(payload));
  return frame;
}

}  // namespace

bool Outlet::send_locked(std::span<const std::byte> frame, const Payload& payload, bool more_follows) {
  if (payload.size == 0) return stream_->send(frame, more_follows);
  if (payload.memory != nullptr) {  // one system call, and for a small payload one packet
    iovec parts[2] = {{const_cast<std::byte*>(frame.data()), frame.size()},
                      {const_cast<std::byte*>(payload.memory), payload.size}};
    return stream_->send_parts(parts, 2, more_follows);
  }
  return stream_->send(frame, true) && payload.send(*stream_);
}

void Outlet::send(std::span<const std::byte> frame, const Payload& payload, bool more_follows) {
  if (stream_ == nullptr) return;
  bool sent = false;
  try {
    sent = send_locked(frame, payload, more_follows);
  } catch (const std::exception&) {  // part of the payload is missing
  }
  if (!sent) stream_->shut_down();
}

bool Outlet::open(wire::Stream& stream, std::uint64_t taken_by_client,
                  const std::function<wire::Buffer(std::uint64_t)>& greeting) {
  const std::lock_guard lock(sending_);
  std::vector<KeptPush> gone;
  {
    const std::lock_guard keeping(keeping_);
    if (taken_by_client > pushed_ || taken_by_client + pushes_.size() < pushed_) return false;
    remove_through(taken_by_client, gone);
    conversing_ = true;
    begun_ = heard_ = taken_by_client;
  }
  let_go(gone);
  stream_ = &stream;
  ++connection_;
  send(greeting(pushed_).bytes(), {});
  // Only taken() and assume_taken() remove, on the thread that is here, and nobody adds while this one sends.
  for (const KeptPush& push : pushes_) {
    const auto payload = push.payload();
    send(push.frame, {payload.size(), payload.data(), {}});
  }
  const std::lock_guard keeping(keeping_);
  begun_ = pushed_;
  return true;
}

void Outlet::close() {
  const std::lock_guard lock(sending_);
  stream_ = nullptr;
}

void Outlet::forget() {
  std::vector<KeptPush> gone;
  {
    const std::scoped_lock lock(sending_, keeping_);
    stream_ = nullptr;
    replies_.clear();
    remove_through(pushed_, gone);
    pushed_ = begun_ = being_sent_ = heard_ = 0;
    conversing_ = false;
  }
  progress_ = 0;
  let_go(gone);
}

void Outlet::evict_reply() {
  // As many lanes as threads: the one that asked longest ago has surely heard its answer.
  replies_.erase(std::min_element(replies_.begin(), replies_.end(), [](const auto& left, const auto& right) {
    return left.second.is.sequence < right.second.is.sequence;
  }));
}

void Outlet::reply(std::span<const std::byte> frame, const Payload& payload, const ReplyKeeping& keeping) {
  wire::FrameHeader header{};
  wire::ReplyHeader result{};
  if (!wire::read_front(frame, header) || !wire::read_front(frame.subspan(sizeof(header)), result)) return;
  const std::lock_guard lock(sending_);
  if (replies_.size() >= most_replies && !replies_.contains(header.lane)) evict_reply();
  auto& [kept, sent_on] = replies_[header.lane];
  sent_on = stream_ != nullptr ? connection_ : 0;
  kept.lane = header.lane;
  kept.sequence = header.sequence;
  kept.again = keeping.again && payload.size > 0;
  kept.context = keeping.context;
  kept.deferred_error = result.deferred_error;
  kept.deferred_message = result.deferred_message;
  const auto bytes = kept.again ? keeping.ask : frame;
  if (kept.bytes.capacity() > large_reply) kept.bytes = {};  // few are, and lanes stay
  kept.bytes.assign(bytes.begin(), bytes.end());
  if (!kept.again && payload.size > 0 && payload.memory != nullptr) {
    kept.bytes.insert(kept.bytes.end(), payload.memory, payload.memory + payload.size);
  }
  send(frame, payload);
}

Outlet::Repeated Outlet::repeat(std::uint32_t lane, std::uint64_t sequence, LinkState::Reply& ask) {
  const std::lock_guard lock(sending_);
  const auto found = replies_.find(lane);
  if (found == replies_.end() || found->second.is.sequence < sequence) return Repeated::under_way;
  auto& [kept, sent_on] = found->second;
  if (kept.sequence > sequence) return Repeated::lost;
  if (sent_on == connection_) return Repeated::done;
  if (kept.again) {
    ask = kept;
    return Repeated::again;
  }
  sent_on = connection_;
  send(kept.bytes, {});
  return Repeated::done;
}

bool Outlet::push(wire::Control message, std::span<const std::byte> fields, std::span<const std::byte> memory,
                  std::function<void()> release, bool reply_follows) {
  return keep_and_send(message, fields, {0, {}, {}, memory, std::move(release)}, reply_follows);
}

bool Outlet::push_text(wire::Control message, std::string text, std::span<const std::byte> fields) {
  return keep_and_send(message, fields, {0, {}, std::move(text), {}, {}});
}

bool Outlet::keep_and_send(wire::Control message, std::span<const std::byte> fields, KeptPush push,
                           bool reply_follows) {
  std::vector<KeptPush> gone;
  bool conversing = false;
  {
    const std::lock_guard lock(sending_);
    const KeptPush* kept = nullptr;
    {
      const std::lock_guard keeping(keeping_);
      conversing = conversing_;
      if (conversing) {
        if (pushes_.size() >= most_pushes) remove_through(pushes_.front().number, gone);
        push.number = ++pushed_;
        push.frame = frame_of(message, push.number, fields, push.payload().size());
        kept_bytes_ += push.payload().size();
        kept_text_ += push.text.size();
        kept = &pushes_.emplace_back(std::move(push));  // stays where it is when others come and go
        if (stream_ != nullptr) begun_ = being_sent_ = kept->number;
      } else {
        gone.push_back(std::move(push));
      }
    }
    if (kept != nullptr) {
      // Nobody removes it before it has been sent, whatever the client says: see taken().
      const auto payload = kept->payload();
      send(kept->frame, {payload.size(), payload.data(), {}}, reply_follows);
      const std::lock_guard keeping(keeping_);
      being_sent_ = 0;
      remove_through(heard_, gone);
    }
  }
  let_go(gone);
  return conversing;
}

void Outlet::remove_through(std::uint64_t number, std::vector<KeptPush>& gone) {
  while (!pushes_.empty() && pushes_.front().number <= number && pushes_.front().number != being_sent_) {
    kept_bytes_ -= pushes_.front().payload().size();
    kept_text_ -= pushes_.front().text.size();
    gone.push_back(std::move(pushes_.front()));
    pushes_.pop_front();
  }
}

void Outlet::let_go(std::vector<KeptPush>& gone) {
  for (KeptPush& push : gone) {
    if (push.release) push.release();
  }
  gone.clear();
}

bool Outlet::taken(std::uint64_t number) {
  std::vector<KeptPush> gone;
  {
    const std::lock_guard keeping(keeping_);
    if (number > begun_) return false;
    heard_ = std::max(heard_, number);
    remove_through(heard_, gone);
  }
  let_go(gone);
  return true;
}

bool Outlet::assume_taken(std::size_t least, std::size_t most) {
  std::uint64_t number = 0;
  {
    const std::lock_guard keeping(keeping_);
    for (const KeptPush& push : pushes_) {
      if (push.number > begun_) break;
      if (!push.release || push.memory.size() < least || push.memory.size() > most) continue;
      number = push.number;
      break;
    }
  }
  if (number == 0 || !taken(number)) return false;
  const std::lock_guard keeping(keeping_);
  return being_sent_ != number;  // else it goes when it has been sent
}

void Outlet::send_progress(std::uint64_t received) {
  static_assert(wire::of_connection(wire::Control::acknowledged));
  const auto frame =
      frame_of(wire::Control::acknowledged, 0, wire::packed(wire::FrameNumber{received}).bytes(), 0);
  send(frame, {});
}

bool Outlet::try_tell_progress(std::uint64_t received) {
  progress_.store(received);
  {
    const std::lock_guard keeping(keeping_);
    if (kept_bytes_ > fits_surely) return false;  // the client may not be reading what was pushed
  }
  const std::unique_lock lock(sending_, std::try_to_lock);
  if (!lock) return false;
  if (progress_.exchange(0) != 0) send_progress(received);
  return true;
}

void Outlet::tell_progress() {
  if (progress_.load() == 0) return;
  const std::lock_guard lock(sending_);
  if (const std::uint64_t received = progress_.exchange(0); received != 0) send_progress(received);
}

void Outlet::save(LinkState& state) {
  const std::scoped_lock lock(sending_, keeping_);
  state.pushed = pushed_;
  state.replies.clear();
  for (const auto& [lane, kept] : replies_) state.replies.push_back(kept.is);
  state.pushes.clear();
  for (const KeptPush& push : pushes_) {
    const auto payload = push.payload();
    auto bytes = push.frame;
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    state.pushes.push_back({push.number, std::move(bytes)});
  }
}

void Outlet::append(LinkState& state, wire::Control message, std::string_view text,
                    std::span<const std::byte> fields) {
  auto frame = frame_of(message, ++state.pushed, fields, text.size());
  const auto bytes = std::as_bytes(std::span(text));
  frame.insert(frame.end(), bytes.begin(), bytes.end());
  state.pushes.push_back({state.pushed, std::move(frame)});
}

void Outlet::load(const LinkState& state) {
  const std::scoped_lock lock(sending_, keeping_);
  conversing_ = state.received != 0 || state.pushed != 0;
  pushed_ = state.pushed;
  replies_.clear();
  for (const auto& reply : state.replies) replies_[reply.lane] = {reply, 0};
  pushes_.clear();
  for (const auto& push : state.pushes) pushes_.push_back({push.number, push.bytes, {}, {}, {}});
}

}  // namespace gpupool::worker
