// Executing a client's calls and answering them.
#include <unistd.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <thread>

#include "generated/message_ids.h"
#include "generated/wire/control.h"
#include "wire/hello.h"
#include "worker/conversation/call.h"
#include "worker/conversation/conversation.h"
#include "worker/conversation/dispatch.h"

namespace gpupool::worker {

/// A waiting call on its way to its reply.
struct Conversation::WaitingCall {
  wire::FrameHeader header{};
  std::vector<std::byte> ask;  ///< of a read, which is executed again where its answer is lost
  std::uint64_t context_name = 0;
  std::uint64_t start_ns = 0;
  Wait wait;
  Answer answer;
  std::atomic<bool> answered = false;
};

namespace {

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// How long the executing thread looks whether a wait is over before it hands it to another thread: about
/// what the hand-over itself takes.
constexpr std::uint64_t patience_ns = 40'000;

/// Calls that only wait or read may be made once more, and so be refused while they wait.
bool may_be_refused(std::uint16_t message) {
  return wire::only_waits(static_cast<wire::Control>(message)) || again(message) != Again::never;
}

}  // namespace

Conversation::Frame Conversation::call(const wire::FrameHeader& header, std::span<const std::byte> body) {
  answer_.payload = {};
  answer_.keep_fields = false;
  answer_.fields.clear();
  const std::size_t row = header.message - wire::first_call;
  if (row >= message_count) return Frame::senseless;
  const Dispatch& entry = dispatch_table[row];
  const bool ask = (header.flags & wire::flag_ask) != 0;
  if (ask != entry.is_ask || ((header.flags & wire::flag_bulk) != 0) != entry.has_payload) {
    return Frame::senseless;
  }
  const std::uint64_t start = ask ? monotonic_ns() : 0;
  Residence::Visit visit(&equipment_.parking.residence);
  Admission admission = Admission::ok;
  CallFate fate = decide(header, visit, admission);
  while (fate == CallFate::wait && !visit) {
    if (!visit.wait([this] { return client_left(); })) return Frame::cut;
    fate = decide(header, visit, admission);
  }
  if (fate == CallFate::wait) return Frame::later;
  if (fate == CallFate::keep) return keep(header, body);
  CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  Call call(*this, answer_, header.lane);  // to the end: payload may be read through it while it is sent
  if (fate == CallFate::run) {
    const bool earlier = admission != Admission::ok;  // a post of an earlier lease, executed under this one
    const std::uint32_t epoch = earlier ? state_.gate.view(boottime_ns()).epoch : header.epoch;
    work_.executes_under(entry.needs_lease ? epoch : 0);
    const std::uint64_t payload = payload_left_;
    wire::Reader in(body);
    wire::Writer out(answer_.fields);
    result = entry.run(call, in, out);
    if (result == malformed) return Frame::senseless;
    if (result == CUDA_SUCCESS && move_rules[row].names != nullptr) {
      session_->journal.note(header.message, header.lane, session_->name_of_current(), body,
                             session_->handles);
    }
    if (payload_left_ == payload && had_no_turn(result, entry) && kept_.has_room(header.length + payload)) {
      return keep(header, body);
    }
  } else if (!ask && !refuse_post(header, body)) {
    return Frame::senseless;
  }
  if (payload_left_ > 0 && !receiver_->skip(payload_left_)) return Frame::cut;
  payload_left_ = 0;
  received(header);
  if (!ask) {
    state_.usage.post();
    if (result != CUDA_SUCCESS) defer(result, header.message);
    return Frame::executed;
  }
  ReplyKeeping keeping;
  if (entry.again == Again::reads) {
    // The header stands before its body, wherever that lies.
    keeping = {
        true, {body.data() - sizeof(header), sizeof(header) + body.size()}, session_->name_of_current()};
  }
  if (auto wait = call.take_wait(); wait && result == CUDA_SUCCESS) {
    begin_wait(header, keeping, start, std::move(*wait));
    return Frame::executed;
  }
  if (entry.waits) send_output();
  state_.usage.ask(monotonic_ns() - start);
  reply(header, result, static_cast<wire::Status>(admission), answer_, keeping);
  return Frame::executed;
}

/// The client hears of it by the push that it waits for, or by the next answer. False: no client says such a
/// thing.
bool Conversation::refuse_post(const wire::FrameHeader& header, std::span<const std::byte> body) {
  if (!dispatch_table[header.message - wire::first_call].refused_by_push) return true;
  wire::Reader in(body);
  messages::CopyToHostAsync wanted;
  if (!messages::CopyToHostAsync::decode(in, wanted)) return false;
  completions.refuse_copy(wanted.ticket, CUDA_ERROR_DEVICE_UNAVAILABLE);
  return true;
}

/// Answers when all contexts have finished what they were given.
void Conversation::wait_for_devices(const wire::FrameHeader& header) {
  work_.waits();
  Wait wait;
  for (const CUcontext context : session_->contexts()) wait.uses.push_back(context);
  wait.ready = [this] { return session_->idle(); };
  wait.finish = [this, home = session_->home(), finished = work_.wait_for(session_->contexts())](Answer&) {
    const CUresult result = finished();
    api_.cuCtxSetCurrent_(home);
    return result;
  };
  wait.context = session_->home();
  begin_wait(header, {}, monotonic_ns(), std::move(wait));
}

void Conversation::begin_wait(const wire::FrameHeader& header, const ReplyKeeping& keeping,
                              std::uint64_t start_ns, Wait wait) {
  auto call = std::make_shared<WaitingCall>();
  call->header = header;
  call->ask.assign(keeping.ask.begin(), keeping.ask.end());
  call->context_name = keeping.context;
  call->start_ns = start_ns;
  call->wait = std::move(wait);
  call->answer = std::move(answer_);
  answer_ = {};
  if (call->wait.context == nullptr) call->wait.context = session_->current();
  bool soon = false;
  if (call->wait.ready) {
    do {
      soon = call->wait.ready();
    } while (!soon && !receiver_->has_frame() && monotonic_ns() - start_ns < patience_ns &&
             sched_yield() == 0);
  }
  if (!soon) {
    if (may_be_refused(header.message)) {
      const std::lock_guard lock(waiting_);
      std::erase_if(waiting_calls_, [](const auto& one) { return one.expired(); });
      waiting_calls_.push_back(call);
    }
    // Looked at after the call is known: what is stopped from now on refuses it, too. No lane is kept for it.
    // The other calls need a lease, and do not come this far without one.
    if (wire::only_waits(static_cast<wire::Control>(header.message)) && stopped_without_lease()) {
      refuse(*call);
      return;
    }
    session_->in_use.add(call->wait.uses);
    std::function<void()> task = [this, call] {
      api_.cuCtxSetCurrent_(call->wait.context);
      try {
        finish(*call);
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "gpupool-worker: connection ended by an error: %s\n", failure.what());
        spoil();
      }
      const std::vector<const void*> uses = std::move(call->wait.uses);
      call->wait = {};  // the staging memory goes back before anybody takes it for unused
      call->answer = {};
      session_->in_use.remove(uses);
    };
    if (lanes_.run(task)) return;
    session_->in_use.remove(call->wait.uses);
  }
  const bool elsewhere = call->wait.context != session_->current();
  if (elsewhere) api_.cuCtxSetCurrent_(call->wait.context);
  finish(*call);
  if (elsewhere) api_.cuCtxSetCurrent_(session_->current());
}

void Conversation::finish(WaitingCall& call) {
  const CUresult result = call.wait.finish(call.answer);
  if (call.answered.exchange(true)) return;
  state_.usage.ask(monotonic_ns() - call.start_ns);
  send_output();
  reply(call.header, result, wire::Status::ok, call.answer, {!call.ask.empty(), call.ask, call.context_name});
}

void Conversation::refuse(WaitingCall& call) {
  if (call.answered.exchange(true)) return;
  Answer none;
  reply(call.header, CUDA_ERROR_DEVICE_UNAVAILABLE, wire::Status::not_attached, none);
}

void Conversation::reply(const wire::FrameHeader& header, CUresult result, wire::Status status,
                         Answer& answer, const ReplyKeeping& keeping) {
  // The lease and the counters are asked for with a time limit: then nobody may be reading any more.
  if (!wire::answered_alone(static_cast<wire::Control>(header.message))) {
    send_driver_log();
    completions.deliver(true);
  }
  charges_.tell(state_.memory, outlet_);
  shares_.tell(state_.memory, outlet_);
  const bool good = result == CUDA_SUCCESS && status == wire::Status::ok;
  const bool payload = answer.payload.size > 0 && good;
  if (!answer.keep_fields && !good) answer.fields.clear();
  const Deferred deferred = take_deferred();
  const wire::ReplyHeader head{result, deferred.error, deferred.message, status};
  wire::FrameHeader frame{};
  frame.length = static_cast<std::uint32_t>(sizeof(frame) + sizeof(head) + answer.fields.size() +
                                            (payload ? sizeof(std::uint64_t) : 0));
  frame.message = header.message;
  frame.flags = static_cast<std::uint16_t>(wire::flag_reply | (payload ? wire::flag_bulk : 0));
  frame.epoch = header.epoch;
  frame.lane = header.lane;
  frame.sequence = header.sequence;
  static thread_local wire::Buffer out;
  out.clear();
  out.append(&frame, sizeof(frame));
  out.append(&head, sizeof(head));
  out.append(answer.fields.data(), answer.fields.size());
  if (payload) out.append(&answer.payload.size, sizeof(answer.payload.size));
  state_.usage.sent(answer.fields.size() + (payload ? answer.payload.size : 0));
  outlet_.reply(out.bytes(), payload ? answer.payload : Payload{}, keeping);
}

/// What is said without being asked for, on a thread that may wait for the client to read.
void Conversation::nudged() {
  if (stopped_without_lease()) refuse_waiting();
  shares_.tell(state_.memory, outlet_);
  if (prints_left_.load()) send_output();
}

/// An answer does not wait until a kernel has printed all: what is left follows when there is room.
void Conversation::send_output() {
  {
    const std::lock_guard lock(printing_);
    prints_left_ = true;  // before it is asked for room: whoever makes some later sees it
    for (std::size_t sent = 0; outlet_.has_room() && sent < PrintedOutput::most_kept;) {
      std::string text = printed_.take();
      if (text.empty()) {
        prints_left_ = false;
        break;
      }
      sent += text.size();
      outlet_.push_text(wire::Control::output, std::move(text),
                        wire::packed(wire::Output{STDOUT_FILENO}).bytes());
    }
    if (prints_left_.load() && outlet_.has_room()) completions.nudge();
  }
  send_driver_log();
}

void Conversation::send_driver_log() {
  if (!equipment_.driver_log || !outlet_.has_room()) return;
  std::string lines = equipment_.driver_log->take();
  if (lines.empty()) return;
  outlet_.push_text(wire::Control::output, std::move(lines),
                    wire::packed(wire::Output{STDERR_FILENO}).bytes());
}

bool Conversation::take_payload(void* into, std::size_t size) {
  if (size == 0) return true;
  if (size > payload_left_) return false;
  if (!kept_payload_.empty()) {
    std::memcpy(into, kept_payload_.data() + kept_payload_.size() - payload_left_, size);
  } else if (!receiver_->take(into, size)) {
    return false;
  }
  payload_left_ -= size;
  return true;
}

void Conversation::defer(CUresult error, std::uint16_t message) {
  const std::lock_guard lock(deferring_);
  if (deferred_.error != CUDA_SUCCESS) return;
  deferred_ = {error, message};
}

Deferred Conversation::take_deferred() {
  const std::lock_guard lock(deferring_);
  return std::exchange(deferred_, {});
}

/// What is stopped does not go on before there is a lease: to wait for it would be to wait for somebody to
/// attach.
bool Conversation::stopped_without_lease() {
  return work_.stopped() && state_.gate.view(boottime_ns()).state != LeaseState::attached;
}

void Conversation::refuse_waiting() {
  std::list<std::weak_ptr<WaitingCall>> calls;
  {
    const std::lock_guard lock(waiting_);
    calls.swap(waiting_calls_);
  }
  for (const auto& one : calls) {
    if (const auto call = one.lock()) refuse(*call);
  }
}

}  // namespace gpupool::worker
