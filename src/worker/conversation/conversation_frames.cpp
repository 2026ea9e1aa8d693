// Each frame once, in order: what was sent twice is not executed twice, and what was executed is
// acknowledged.
#include "generated/message_ids.h"
#include "generated/wire/control.h"
#include "wire/hello.h"
#include "worker/conversation/conversation.h"

namespace gpupool::worker {
namespace {

/// A client keeps what it has sent until it is told that it was executed. A reply tells; without one it is
/// told after so much.
constexpr std::uint64_t unacknowledged_bytes = 64 << 10;
constexpr std::uint64_t unacknowledged_frames = 256;

}  // namespace

Conversation::Frame Conversation::execute(const wire::FrameHeader& header, std::span<const std::byte> body) {
  payload_left_ = 0;
  if ((header.flags & wire::flag_reply) != 0) return Frame::senseless;
  if ((header.flags & wire::flag_bulk) != 0 &&
      !wire::read_front(body.last(sizeof(std::uint64_t)), payload_left_)) {
    return Frame::senseless;
  }
  if (header.sequence == 0) return execute_unnumbered(header, body);
  if (received_ != 0 && header.sequence <= received_) {  // sent twice: it has been executed
    const bool ask = (header.flags & wire::flag_ask) != 0;
    if (!receiver_->skip(payload_left_)) return Frame::cut;
    return ask ? repeat(header.lane, header.sequence) : Frame::executed;
  }
  if (received_ != 0 && header.sequence != received_ + 1) return Frame::senseless;
  const std::uint64_t bytes = body.size() + payload_left_;
  const Frame end = header.message < wire::first_call ? control(header, body) : call(header, body);
  if (end != Frame::later) state_.usage.received(bytes);
  if (end != Frame::executed) return end;
  if ((header.flags & wire::flag_ask) != 0) {
    unacknowledged_bytes_ = unacknowledged_frames_ = 0;
  } else {
    acknowledge(bytes);
  }
  return end;
}

void Conversation::received(const wire::FrameHeader& header) {
  if (!repeating_) received_ = header.sequence;
  used_ = true;
}

void Conversation::acknowledge(std::uint64_t bytes) {
  unacknowledged_bytes_ += bytes;
  ++unacknowledged_frames_;
  if (unacknowledged_bytes_ < unacknowledged_bytes && unacknowledged_frames_ < unacknowledged_frames) return;
  unacknowledged_bytes_ = unacknowledged_frames_ = 0;
  if (!outlet_.try_tell_progress(received_)) completions.nudge();
}

Conversation::Frame Conversation::execute_unnumbered(const wire::FrameHeader& header,
                                                     std::span<const std::byte> body) {
  if (header.flags != 0) return Frame::senseless;
  switch (static_cast<wire::Control>(header.message)) {
    case wire::Control::taken: {
      wire::FrameNumber last;
      if (!wire::unpack(body, last) || !outlet_.taken(last.number)) return Frame::senseless;
      if (prints_left_.load()) completions.nudge();
      return Frame::executed;
    }
    case wire::Control::repeat: {
      wire::Repeat wanted;
      const bool good = wire::unpack(body, wanted) && wanted.sequence <= received_;
      return good ? repeat(wanted.lane, wanted.sequence) : Frame::senseless;
    }
    default:
      return Frame::senseless;
  }
}

Conversation::Frame Conversation::repeat(std::uint32_t lane, std::uint64_t sequence) {
  LinkState::Reply ask;
  switch (outlet_.repeat(lane, sequence, ask)) {
    case Outlet::Repeated::done:
    case Outlet::Repeated::under_way:
      return Frame::executed;
    case Outlet::Repeated::lost:
      return Frame::senseless;
    case Outlet::Repeated::again:
      break;
  }
  wire::FrameHeader header{};
  if (!wire::read_front(ask.bytes, header) || header.message < wire::first_call) return Frame::senseless;
  if (ask.deferred_error != CUDA_SUCCESS) {  // earlier than what may have come since
    const std::lock_guard lock(deferring_);
    deferred_ = {static_cast<CUresult>(ask.deferred_error), static_cast<std::uint16_t>(ask.deferred_message)};
  }
  CUcontext home = nullptr;
  if (ask.context != 0 && !session_->handles.find(wire::Kind::context, ask.context, home)) {
    Answer none;
    reply(header, CUDA_ERROR_CONTEXT_IS_DESTROYED, wire::Status::ok, none);
    return Frame::executed;
  }
  const CUcontext before = session_->current();
  // While memory is away the driver does nothing, and without a lease the call is refused in any context.
  Residence::Visit visit(&equipment_.parking.residence);
  if (!visit && !attached()) home = before;
  if (home != before && !visit.wait([this] { return client_left(); })) return Frame::cut;
  if (home != before) static_cast<void>(session_->select(home));
  repeating_ = true;
  payload_left_ = 0;
  const Frame end = call(header, std::span<const std::byte>(ask.bytes).subspan(sizeof(header)));
  repeating_ = false;
  if (home != before) static_cast<void>(session_->select(before));
  return end;
}

Conversation::Frame Conversation::control(const wire::FrameHeader& header, std::span<const std::byte> body) {
  answer_ = {};
  if ((header.flags & wire::flag_bulk) != 0) return Frame::senseless;
  const bool ask = (header.flags & wire::flag_ask) != 0;
  wire::Reader in(body);
  wire::Writer out(answer_.fields);
  switch (static_cast<wire::Control>(header.message)) {
    case wire::Control::lease: {
      if (!ask || !in.finished()) return Frame::senseless;
      Residence::Visit visit(&equipment_.parking.residence);
      const Admission admission = state_.gate.admits(header.epoch, boottime_ns());
      const bool admitted = admission == Admission::ok;  // memory is back, or is about to be
      if (admitted && !visit.wait([this] { return client_left(); })) return Frame::cut;
      received(header);
      if (admitted) execute_kept();
      const CUresult result = admitted ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
      reply(header, result, static_cast<wire::Status>(admission), answer_);
      return Frame::executed;
    }
    case wire::Control::drain: {
      wire::Drain how;
      if (!ask || !wire::Drain::decode(in, how)) return Frame::senseless;
      received(header);
      const Residence::Visit visit(&equipment_.parking.residence);
      if (visit) execute_kept();
      if (waits_for_lease()) {
        reply(header, CUDA_ERROR_DEVICE_UNAVAILABLE, wire::Status::not_attached, answer_);
        return Frame::executed;
      }
      if (!visit) {  // everything was finished before memory went away
        reply(header, CUDA_SUCCESS, wire::Status::ok, answer_);
        return Frame::executed;
      }
      wait_for_devices(header);
      return Frame::executed;
    }
    case wire::Control::stats: {
      wire::Stats how;
      if (!ask || !wire::Stats::decode(in, how)) return Frame::senseless;
      received(header);
      tell_stats(out, how.reset_peak != 0);
      reply(header, CUDA_SUCCESS, wire::Status::ok, answer_);
      return Frame::executed;
    }
    case wire::Control::ping:
      if (!ask || !in.finished()) return Frame::senseless;
      received(header);
      reply(header, CUDA_SUCCESS, wire::Status::ok, answer_);
      return Frame::executed;
    case wire::Control::limit_answered: {
      wire::LimitAnswered answer;
      if (ask || !wire::LimitAnswered::decode(in, answer)) return Frame::senseless;
      received(header);
      shares_.answered(answer.number);
      return Frame::executed;
    }
    case wire::Control::goodbye:
      goodbye_ = true;
      return Frame::cut;
    default:
      return Frame::senseless;
  }
}

void Conversation::tell_stats(wire::Writer& out, bool reset_peak) {
  work_.charge();
  wire::StatsReply answer;
  const UsageSnapshot usage = state_.usage.snapshot();
  answer.device_ns = usage.device_ns;
  answer.kernels = usage.kernels;
  answer.failure = state_.work.failure().error;
  for (auto& account : state_.memory) {
    const auto view = account.view();
    answer.memory.push_back({view.used, view.peak});
    if (reset_peak) account.reset_peak();
  }
  answer.encode(out);
}

}  // namespace gpupool::worker
