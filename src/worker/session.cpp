// The loop that reads a client's frames, executes them and answers.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <thread>

#include "generated/message_ids.h"
#include "wire/hello.h"
#include "worker/dispatch.h"
#include "worker/executor.h"

namespace gpupool::worker {

struct Executor::Connection {
  explicit Connection(wire::Stream& carrier) : outlet(carrier), receiver(carrier) {}
  Outlet outlet;
  wire::Receiver receiver;
};

/// A waiting call on its way to its reply.
struct Executor::WaitingCall {
  wire::FrameHeader header;
  std::uint64_t start_ns;
  Wait wait;
  Answer answer;
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

/// A client that sends calls without work for so long does not want the device.
constexpr std::int64_t lull_ns = 1'000'000;

}  // namespace

ServeEnd Executor::serve(wire::Stream& stream, std::span<const std::byte> hello) {
  Connection connection(stream);
  connection_ = &connection;
  {
    const std::lock_guard lock(serving_);
    served_ = &stream;
  }
  goodbye_ = false;
  printed_.emplace();
  wire::FrameHeader header{};
  wire::HelloBody body{};
  if (wire::read_front(hello, header) && wire::read_front(hello.subspan(sizeof(header)), body) &&
      greet(connection, header, body)) {
    host_calls.open(connection.outlet);  // not before: what another process left behind is not this one's
    std::span<const std::byte> frame;
    while (true) {
      // Nothing left to do, or nothing for the device while others want it: a burst of device work ends here.
      if (!connection.receiver.has_frame() || keeps_others_waiting()) waits();
      if (!connection.receiver.receive(header, frame)) break;
      const std::lock_guard lock(executing_);
      const bool good = execute(connection, header, frame);
      executed.store(header.sequence, std::memory_order_release);
      if (!good) break;
    }
  }
  connection.outlet.shut_down();  // whoever still sends sees that there is nobody
  host_calls.close();
  lanes_.wait_idle();
  completions.close();
  waits();
  printed_.reset();
  {
    const std::lock_guard lock(serving_);
    served_ = nullptr;
  }
  connection_ = nullptr;
  return goodbye_ ? ServeEnd::goodbye : ServeEnd::broken;
}

bool Executor::keeps_others_waiting() const {
  return turns_ && turns_->contended() &&
         boottime_ns() - state.usage.last_submit_ns.load(std::memory_order_relaxed) > lull_ns;
}

bool Executor::greet(Connection& connection, const wire::FrameHeader& header, const wire::HelloBody& hello) {
  wire::HelloReply answer;
  answer_ = {};  // what the connection before left unfinished
  try {
    const std::lock_guard lock(executing_);
    if (client_pid_ != 0 && client_pid_ != hello.pid) reset();
    if (device_of_.empty()) open_devices(hello.arena_base);
    client_pid_ = hello.pid;
    completions.open(connection.outlet, home_, [this, &connection] { send_output(connection); });
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "session not opened: %s\n", failure.what());
    reply(connection, header, CUDA_ERROR_DEVICE_UNAVAILABLE, wire::Status::closed, answer_);
    return false;
  }
  answer.fingerprint = table_fingerprint;
  for (const auto& arena : arenas_) {
    answer.devices.push_back({arena->base(), DeviceArena::span, arena->granularity(), arena->limit()});
  }
  const std::string profile = format_profile(profile_);
  answer.profile = profile;
  wire::Writer out(answer_.fields);
  answer.encode(out);
  return reply(connection, header, CUDA_SUCCESS, wire::Status::ok, answer_);
}

bool Executor::execute(Connection& connection, const wire::FrameHeader& header,
                       std::span<const std::byte> body) {
  answer_.payload = {};
  answer_.keep_fields = false;
  answer_.fields.clear();
  wait_.reset();
  payload_left_ = 0;
  lane_ = header.lane;
  if ((header.flags & wire::flag_reply) != 0) return false;
  if ((header.flags & wire::flag_bulk) != 0 &&
      !wire::read_front(body.last(sizeof(std::uint64_t)), payload_left_)) {
    return false;
  }
  state.usage.received(body.size() + payload_left_);
  return header.message < wire::first_call ? control(connection, header, body)
                                           : call(connection, header, body);
}

bool Executor::call(Connection& connection, const wire::FrameHeader& header,
                    std::span<const std::byte> body) {
  const std::size_t row = header.message - wire::first_call;
  if (row >= message_count) return false;
  const Dispatch& entry = dispatch_table[row];
  const bool ask = (header.flags & wire::flag_ask) != 0;
  if (ask != entry.is_ask || ((header.flags & wire::flag_bulk) != 0) != entry.has_payload) return false;

  call_epoch_.store(header.epoch, std::memory_order_relaxed);
  const std::uint64_t start = ask ? monotonic_ns() : 0;
  const Admission admission =
      entry.needs_lease ? state.gate.admits(header.epoch, boottime_ns()) : Admission::ok;
  CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (admission == Admission::ok) {
    wire::Reader in(body);
    wire::Writer out(answer_.fields);
    result = entry.run(*this, in, out);
    if (result == malformed) return false;
  } else if (header.message == static_cast<std::uint16_t>(MessageId::MapMemory)) {
    // The client counts on this mapping: it is made up for when the session has a lease again.
    messages::MapMemory wanted;
    wire::Reader in(body);
    if (!messages::MapMemory::decode(in, wanted) || refused_maps_.size() >= 4096) return false;
    refused_maps_.push_back({wanted.device, wanted.address, wanted.size});
  } else if (header.message == static_cast<std::uint16_t>(MessageId::CopyToHostAsync)) {
    messages::CopyToHostAsync wanted;  // the client waits for its bytes, or to hear that there are none
    wire::Reader in(body);
    if (!messages::CopyToHostAsync::decode(in, wanted)) return false;
    completions.refuse_copy(wanted.ticket, CUDA_ERROR_DEVICE_UNAVAILABLE);
  }
  if (payload_left_ > 0 && !connection.receiver.skip(payload_left_)) return false;
  payload_left_ = 0;
  if (!ask) {
    state.usage.post();
    if (result != CUDA_SUCCESS) defer(result, header.message);
    return true;
  }
  if (wait_ && result == CUDA_SUCCESS) return begin_wait(connection, header, start);
  if (entry.waits && !send_output(connection)) return false;
  state.usage.ask(monotonic_ns() - start);
  return reply(connection, header, result, static_cast<wire::Status>(admission), answer_);
}

bool Executor::begin_wait(Connection& connection, const wire::FrameHeader& header, std::uint64_t start_ns) {
  // With braces: not every compiler makes an aggregate from arguments in parentheses.
  auto call =
      std::make_shared<WaitingCall>(WaitingCall{header, start_ns, std::move(*wait_), std::move(answer_)});
  answer_ = {};
  wait_.reset();
  if (call->wait.context == nullptr) call->wait.context = current_;
  bool soon = false;
  if (call->wait.ready) {
    do {
      soon = call->wait.ready();
    } while (!soon && !connection.receiver.has_frame() && monotonic_ns() - start_ns < patience_ns &&
             sched_yield() == 0);
  }
  if (!soon) {
    in_use.add(call->wait.uses);
    std::function<void()> task = [this, call, &connection] {
      api.cuCtxSetCurrent_(call->wait.context);
      bool good = false;
      try {
        good = finish(connection, *call);
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "gpupool-worker: connection ended by an error: %s\n", failure.what());
      }
      if (!good) connection.outlet.shut_down();
      const std::vector<const void*> uses = std::move(call->wait.uses);
      *call = {};  // the staging memory goes back before anybody takes it for unused
      in_use.remove(uses);
    };
    if (lanes_.run(task)) return true;
    in_use.remove(call->wait.uses);
  }
  const bool elsewhere = call->wait.context != current_;
  if (elsewhere) api.cuCtxSetCurrent_(call->wait.context);
  const bool good = finish(connection, *call);
  if (elsewhere) api.cuCtxSetCurrent_(current_);
  return good;
}

bool Executor::finish(Connection& connection, WaitingCall& call) {
  const CUresult result = call.wait.finish(call.answer);
  state.usage.ask(monotonic_ns() - call.start_ns);
  return send_output(connection) && reply(connection, call.header, result, wire::Status::ok, call.answer);
}

bool Executor::reply(Connection& connection, const wire::FrameHeader& header, CUresult result,
                     wire::Status status, Answer& answer) {
  // What the lease and the counters are is asked with a time limit: then nobody may be reading any more.
  const auto control = static_cast<wire::Control>(header.message);
  if (control != wire::Control::lease && control != wire::Control::stats) completions.deliver();
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
  return connection.outlet.send(out.bytes(), payload ? answer.payload : Payload{});
}

bool Executor::send_output(Connection& connection) {
  const std::string text = printed_ ? printed_->take() : std::string();
  if (text.empty()) return true;
  return connection.outlet.push(wire::Control::output, {},
                                {text.size(), reinterpret_cast<const std::byte*>(text.data()), {}});
}

bool Executor::control(Connection& connection, const wire::FrameHeader& header,
                       std::span<const std::byte> body) {
  if ((header.flags & wire::flag_bulk) != 0) return false;
  const bool ask = (header.flags & wire::flag_ask) != 0;
  wire::Reader in(body);
  wire::Writer out(answer_.fields);
  switch (static_cast<wire::Control>(header.message)) {
    case wire::Control::lease: {
      if (!ask || !in.finished()) return false;
      const Admission admission = state.gate.admits(header.epoch, boottime_ns());
      if (admission == Admission::ok) {
        retry_refused_maps();
        wire::LeaseReply answer;
        for (const auto& arena : arenas_) answer.limits.push_back(arena->limit());
        answer.encode(out);
      }
      const CUresult result = admission == Admission::ok ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
      return reply(connection, header, result, static_cast<wire::Status>(admission), answer_);
    }
    case wire::Control::drain: {
      in.get<std::uint32_t>();
      if (!ask || !in.finished()) return false;
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
      return begin_wait(connection, header, monotonic_ns());
    }
    case wire::Control::stats: {
      const bool reset_peak = in.get<std::uint32_t>() != 0;
      if (!ask || !in.finished()) return false;
      tick();
      wire::StatsReply answer;
      const UsageSnapshot usage = state.usage.snapshot();
      answer.device_ns = usage.device_ns;
      answer.kernels = usage.kernels;
      for (auto& account : state.memory) {
        const auto view = account.view();
        answer.memory_used.push_back(view.used);
        answer.memory_peak.push_back(view.peak);
        if (reset_peak) account.reset_peak();
      }
      answer.encode(out);
      return reply(connection, header, CUDA_SUCCESS, wire::Status::ok, answer_);
    }
    case wire::Control::ping:
      if (!ask || !in.finished()) return false;
      return reply(connection, header, CUDA_SUCCESS, wire::Status::ok, answer_);
    case wire::Control::goodbye:
      goodbye_ = true;
      return false;
    default:
      return false;
  }
}

bool Executor::take_payload(void* into, std::size_t size) {
  if (size > payload_left_ || !connection_->receiver.take(into, size)) return false;
  payload_left_ -= size;
  return true;
}

bool Executor::drain(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (std::chrono::steady_clock::now() < deadline) {
    std::unique_lock lock(executing_, std::defer_lock);
    if (!lock.try_lock_until(deadline)) return false;
    const auto pending = [this] {
      const std::lock_guard serving(serving_);
      return served_ != nullptr && served_->holds_unread();
    };
    if (!pending() && lanes_.active() == 0) {
      if (!timer_) return true;
      timer_->resolve();
      if (!state.usage.in_flight.load()) return true;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace gpupool::worker
