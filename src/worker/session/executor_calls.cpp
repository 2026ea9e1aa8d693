// Executing a client's calls and answering them.
#include <unistd.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <thread>

#include "generated/message_ids.h"
#include "wire/hello.h"
#include "worker/session/dispatch.h"
#include "worker/session/executor.h"

namespace gpupool::worker {

/// A waiting call on its way to its reply.
struct Executor::WaitingCall {
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

Executor::Frame Executor::call(const wire::FrameHeader& header, std::span<const std::byte> body) {
  answer_.payload = {};
  answer_.keep_fields = false;
  answer_.fields.clear();
  wait_.reset();
  lane_ = header.lane;
  const std::size_t row = header.message - wire::first_call;
  if (row >= message_count) return Frame::senseless;
  const Dispatch& entry = dispatch_table[row];
  const bool ask = (header.flags & wire::flag_ask) != 0;
  if (ask != entry.is_ask || ((header.flags & wire::flag_bulk) != 0) != entry.has_payload) {
    return Frame::senseless;
  }
  call_epoch_.store(entry.needs_lease ? header.epoch : 0, std::memory_order_relaxed);
  const std::uint64_t start = ask ? monotonic_ns() : 0;
  const auto asked = [&] {
    return entry.needs_lease ? state.gate.admits(header.epoch, boottime_ns()) : Admission::ok;
  };
  Residence::Visit visit(&parking.residence);
  Admission admission = asked();
  if (!visit) {
    const Away away = while_away(admission, entry.needs_lease, ask, payload_left_ > 0,
                                 entry.refused == Refused::mapped_later);
    if (away == Away::keep && parking.kept.add(header, body)) {
      received(header);
      state.usage.post();
      return Frame::executed;
    }
    if (away != Away::refuse && !visit.wait([this] { return client_left(); })) return Frame::cut;
    admission = asked();
  }
  if (visit) execute_kept();
  CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (admission == Admission::ok) {
    wire::Reader in(body);
    wire::Writer out(answer_.fields);
    result = entry.run(*this, in, out);
    if (result == malformed) return Frame::senseless;
    if (result == CUDA_SUCCESS && move_rules[row].names != nullptr) {
      journal.note(header.message, header.lane, name_of_current(), body, handles);
    }
  } else if (entry.refused == Refused::mapped_later) {
    // The client counts on this mapping: it is made up for when the session has a lease again.
    messages::MapMemory wanted;
    wire::Reader in(body);
    if (!messages::MapMemory::decode(in, wanted) || refused_maps_.size() >= max_refused_maps) {
      return Frame::senseless;
    }
    refused_maps_.push_back({wanted.device, wanted.address, wanted.size});
  } else if (entry.refused == Refused::told) {
    messages::CopyToHostAsync wanted;  // the client waits for its bytes, or to hear that there are none
    wire::Reader in(body);
    if (!messages::CopyToHostAsync::decode(in, wanted)) return Frame::senseless;
    completions.refuse_copy(wanted.ticket, CUDA_ERROR_DEVICE_UNAVAILABLE);
  }
  if (payload_left_ > 0 && !receiver_->skip(payload_left_)) return Frame::cut;
  payload_left_ = 0;
  received(header);
  if (!ask) {
    state.usage.post();
    if (result != CUDA_SUCCESS) defer(result, header.message);
    return Frame::executed;
  }
  ReplyKeeping keeping;
  if (entry.again == Again::reads) {
    // The header stands before its body, wherever that lies.
    keeping = {true, {body.data() - sizeof(header), sizeof(header) + body.size()}, name_of_current()};
  }
  if (wait_ && result == CUDA_SUCCESS) {
    begin_wait(header, keeping, start);
    return Frame::executed;
  }
  if (entry.waits) send_output();
  state.usage.ask(monotonic_ns() - start);
  reply(header, result, static_cast<wire::Status>(admission), answer_, keeping);
  return Frame::executed;
}

void Executor::begin_wait(const wire::FrameHeader& header, const ReplyKeeping& keeping,
                          std::uint64_t start_ns) {
  auto call = std::make_shared<WaitingCall>();
  call->header = header;
  call->ask.assign(keeping.ask.begin(), keeping.ask.end());
  call->context_name = keeping.context;
  call->start_ns = start_ns;
  call->wait = std::move(*wait_);
  call->answer = std::move(answer_);
  answer_ = {};
  wait_.reset();
  if (call->wait.context == nullptr) call->wait.context = current_;
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
    in_use.add(call->wait.uses);
    std::function<void()> task = [this, call] {
      api.cuCtxSetCurrent_(call->wait.context);
      try {
        finish(*call);
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "gpupool-worker: connection ended by an error: %s\n", failure.what());
        spoil();
      }
      const std::vector<const void*> uses = std::move(call->wait.uses);
      call->wait = {};  // the staging memory goes back before anybody takes it for unused
      call->answer = {};
      in_use.remove(uses);
    };
    if (lanes_.run(task)) return;
    in_use.remove(call->wait.uses);
  }
  const bool elsewhere = call->wait.context != current_;
  if (elsewhere) api.cuCtxSetCurrent_(call->wait.context);
  finish(*call);
  if (elsewhere) api.cuCtxSetCurrent_(current_);
}

void Executor::spoil() {
  spoiled_ = true;
  const std::lock_guard serving(serving_);
  if (served_ != nullptr) served_->shut_down();
}

void Executor::finish(WaitingCall& call) {
  const CUresult result = call.wait.finish(call.answer);
  if (call.answered.exchange(true)) return;
  state.usage.ask(monotonic_ns() - call.start_ns);
  send_output();
  reply(call.header, result, wire::Status::ok, call.answer, {!call.ask.empty(), call.ask, call.context_name});
}

void Executor::refuse(WaitingCall& call) {
  if (call.answered.exchange(true)) return;
  Answer none;
  reply(call.header, CUDA_ERROR_DEVICE_UNAVAILABLE, wire::Status::not_attached, none);
}

void Executor::reply(const wire::FrameHeader& header, CUresult result, wire::Status status, Answer& answer,
                     const ReplyKeeping& keeping) {
  // What the lease and the counters are is asked with a time limit: then nobody may be reading any more.
  if (!wire::answered_alone(static_cast<wire::Control>(header.message))) {
    completions.deliver();
    send_driver_log();
  }
  charges.tell(state.memory, outlet);
  shares.tell(state.memory, outlet);
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
  state.usage.sent(answer.fields.size() + (payload ? answer.payload.size : 0));
  outlet.reply(out.bytes(), payload ? answer.payload : Payload{}, keeping);
}

void Executor::send_output() {
  if (!outlet.has_room()) return;  // the text stays where it is
  std::string text = printed_ ? printed_->take() : std::string();
  if (!text.empty())
    outlet.push_text(wire::Control::output, std::move(text),
                     wire::packed(wire::Output{STDOUT_FILENO}).bytes());
  send_driver_log();
}

void Executor::send_driver_log() {
  if (!driver_log_ || !outlet.has_room()) return;
  std::string lines = driver_log_->take();
  if (lines.empty()) return;
  outlet.push_text(wire::Control::output, std::move(lines),
                   wire::packed(wire::Output{STDERR_FILENO}).bytes());
}

std::uint64_t Executor::name_of_current() const {
  return current_ == nullptr ? 0 : handles.name_of(wire::Kind::context, current_);
}

Executor::Frame Executor::control(const wire::FrameHeader& header, std::span<const std::byte> body) {
  answer_ = {};
  if ((header.flags & wire::flag_bulk) != 0) return Frame::senseless;
  const bool ask = (header.flags & wire::flag_ask) != 0;
  wire::Reader in(body);
  wire::Writer out(answer_.fields);
  switch (static_cast<wire::Control>(header.message)) {
    case wire::Control::lease: {
      if (!ask || !in.finished()) return Frame::senseless;
      Residence::Visit visit(&parking.residence);
      const Admission admission = state.gate.admits(header.epoch, boottime_ns());
      const bool admitted = admission == Admission::ok;  // memory is back, or is about to be
      if (admitted && !visit.wait([this] { return client_left(); })) return Frame::cut;
      received(header);
      if (admitted) {
        execute_kept();
        retry_refused_maps();
      }
      const CUresult result = admitted ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
      reply(header, result, static_cast<wire::Status>(admission), answer_);
      return Frame::executed;
    }
    case wire::Control::drain: {
      wire::Drain how;
      if (!ask || !wire::Drain::decode(in, how)) return Frame::senseless;
      received(header);
      const Residence::Visit visit(&parking.residence);
      if (!visit) {  // everything was finished before memory went away
        reply(header, CUDA_SUCCESS, wire::Status::ok, answer_);
        return Frame::executed;
      }
      waits();
      Wait wait;
      for (const auto& [context, device] : device_of_) wait.uses.push_back(context);
      wait.ready = [this] {
        return std::all_of(device_of_.begin(), device_of_.end(),
                           [this](const auto& entry) { return idle(entry.first); });
      };
      wait.finish = [this, contexts = wait.uses](Answer&) {
        CUresult first = CUDA_SUCCESS;
        for (const void* const context : contexts) {
          api.cuCtxSetCurrent_(static_cast<CUcontext>(const_cast<void*>(context)));
          const CUresult result = api.cuCtxSynchronize_();
          if (first == CUDA_SUCCESS) first = result;
        }
        return first;
      };
      wait.context = home_;
      wait_ = std::move(wait);
      begin_wait(header, {}, monotonic_ns());
      return Frame::executed;
    }
    case wire::Control::stats: {
      wire::Stats how;
      if (!ask || !wire::Stats::decode(in, how)) return Frame::senseless;
      received(header);
      charge_what_is_complete();
      wire::StatsReply answer;
      const UsageSnapshot usage = state.usage.snapshot();
      answer.device_ns = usage.device_ns;
      answer.kernels = usage.kernels;
      for (auto& account : state.memory) {
        const auto view = account.view();
        answer.memory.push_back({view.used, view.peak});
        if (how.reset_peak != 0) account.reset_peak();
      }
      answer.encode(out);
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
      shares.answered(answer.number);
      return Frame::executed;
    }
    case wire::Control::goodbye:
      goodbye_ = true;
      return Frame::cut;
    default:
      return Frame::senseless;
  }
}

bool Executor::take_payload(void* into, std::size_t size) {
  if (size > payload_left_ || !receiver_->take(into, size)) return false;
  payload_left_ -= size;
  return true;
}

}  // namespace gpupool::worker
