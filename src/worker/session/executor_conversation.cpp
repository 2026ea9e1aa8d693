// What a client and a session have said to each other: it goes on when the connection that carried it breaks.
// The loop that reads frames, and the rules by which each is executed once.
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "generated/message_ids.h"
#include "wire/hello.h"
#include "worker/session/executor.h"

namespace gpupool::worker {
namespace {

/// A client keeps what it has sent until it is told that it was executed. A reply tells; without one it is
/// told after so much.
constexpr std::uint64_t unacknowledged_bytes = 64 << 10;
constexpr std::uint64_t unacknowledged_frames = 256;

/// A client that sends calls without work for so long does not want the device.
constexpr std::int64_t lull_ns = 1'000'000;

}  // namespace

ServeEnd Executor::serve(wire::Stream& stream, std::span<const std::byte> hello) {
  wire::Receiver receiver(stream);
  receiver_ = &receiver;
  {
    const std::lock_guard lock(serving_);
    served_ = &stream;
  }
  goodbye_ = false;
  wire::FrameHeader header{};
  wire::HelloBody body{};
  if (wire::read_front(hello, header) && wire::read_front(hello.subspan(sizeof(header)), body) &&
      greet(stream, header, body)) {
    bool goes_on = false;
    try {
      goes_on = converse(receiver);
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "gpupool-worker: connection ended by an error: %s\n", failure.what());
    }
    stream.shut_down();  // whoever still sends sees that there is nobody
    outlet.close();
    waits();
    if (!goes_on || spoiled_.load()) {
      const std::lock_guard lock(executing_);  // it may be being written down
      end_conversation();
    }
  }
  {
    const std::lock_guard lock(serving_);
    served_ = nullptr;
  }
  receiver_ = nullptr;
  return goodbye_ ? ServeEnd::goodbye : ServeEnd::broken;
}

/// Until the connection breaks: then true, and another one may go on where this one ended.
bool Executor::converse(wire::Receiver& receiver) {
  wire::FrameHeader header{};
  std::span<const std::byte> frame;
  while (true) {
    if (!receiver.has_frame()) {  // nothing left to do: a burst of device work ends here
      waits();
      publish_obstacle(false);
    } else if (keeps_others_waiting()) {
      waits();
    }
    if (!receiver.receive(header, frame)) return receiver.ended();
    std::unique_lock lock(executing_);
    if (!may_go_on(lock)) return true;
    switch (execute(header, frame)) {
      case Frame::executed:
        if (header.sequence != 0) executed.store(received_, std::memory_order_release);
        break;
      case Frame::cut:
        return !goodbye_;
      case Frame::senseless:
        return false;
    }
  }
}

bool Executor::keeps_others_waiting() const {
  return turns_ && turns_->contended() &&
         boottime_ns() - state.usage.last_submit_ns.load(std::memory_order_relaxed) > lull_ns;
}

bool Executor::greet(wire::Stream& stream, const wire::FrameHeader& header, const wire::HelloBody& hello) {
  const bool goes_on = hello.sent != 0 || hello.taken != 0;
  const bool known =
      !goes_on || (conversing_ && !given_up_.load() && hello.pid == client_pid_ && hello.sent >= received_);
  bool opened = known;
  try {
    const std::lock_guard lock(executing_);
    if (known && !goes_on) begin_conversation(hello);
    // Who goes on needs no driver yet, and is not kept waiting for memory that is away.
    if (const Residence::Visit visit(&parking.residence); visit)
      api.cuCtxSetCurrent_(current_);  // of this thread
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "session not opened: %s\n", failure.what());
    opened = false;
  }
  wire::HelloReply answer;
  answer.fingerprint = table_fingerprint;
  for (const auto& arena : arenas_) {
    answer.devices.push_back({arena->base(), DeviceArena::span, arena->granularity(), arena->limit()});
  }
  if (known && !goes_on) {
    std::vector<std::uint64_t> rooms;
    for (const auto& device : answer.devices) rooms.push_back(device.limit);
    shares.begin(std::move(rooms));
  }
  const std::string profile = [this] {
    const std::lock_guard lock(parking.identity);
    return format_profile(profile_);
  }();
  answer.profile = profile;
  answer.received = received_;
  const auto greeting = [&](wire::Status status, std::uint64_t pushed) {
    const bool good = status == wire::Status::ok;
    wire::FrameHeader frame{};
    frame.message = header.message;
    frame.flags = wire::flag_reply;
    frame.sequence = header.sequence;
    wire::Buffer out;
    out.append(&frame, sizeof(frame));
    const wire::ReplyHeader result{good ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE, 0, 0, status};
    out.append(&result, sizeof(result));
    if (good) {
      answer.pushed = pushed;
      wire::Writer writer(out);
      answer.encode(writer);
    }
    const auto length = static_cast<std::uint32_t>(out.size());
    std::memcpy(out.data(), &length, sizeof(length));
    return out;
  };
  if (opened) client_connection_ = hello.connection;
  if (opened && outlet.open(stream, hello.taken,
                            [&](std::uint64_t pushed) { return greeting(wire::Status::ok, pushed); })) {
    return true;
  }
  // A conversation that cannot be gone on with by this client stays as it is for one that can.
  static_cast<void>(
      stream.send(greeting(known && !opened ? wire::Status::closed : wire::Status::unknown, 0).bytes()));
  stream.shut_down();
  return false;
}

/// Another process, or the same that knows of no earlier connection.
void Executor::begin_conversation(const wire::HelloBody& hello) {
  end_conversation();
  const bool anew = device_of_.empty() || (client_pid_ != 0 && client_pid_ != hello.pid);
  Residence::Visit visit(&parking.residence);
  if (anew && !visit.wait([this] { return client_left(); })) throw std::runtime_error("the client left");
  if (client_pid_ != 0 && client_pid_ != hello.pid) reset();
  if (device_of_.empty()) {
    std::vector<std::uint64_t> bases(devices_.size());
    for (std::size_t n = 0; n < bases.size() && hello.arena_base != 0; ++n) {
      bases[n] = hello.arena_base + n * DeviceArena::span;
    }
    open_devices(bases);
  }
  client_pid_ = hello.pid;
  if (!printed_) printed_.emplace();
  completions.open(home_, [this] { send_output(); });
  host_calls.open();  // not before: what another process left behind is not this one's
  charges.forget();
  conversing_ = true;
}

void Executor::end_conversation() {
  host_calls.close();
  lanes_.wait_idle();
  completions.close();
  outlet.forget();
  if (printed_) static_cast<void>(printed_->take());  // nobody is left whom it is for
  if (driver_log_) static_cast<void>(driver_log_->take());
  answer_ = {};  // what was left unfinished
  conversing_ = false;
  spoiled_ = given_up_ = false;
  received_ = 0;
  unacknowledged_bytes_ = unacknowledged_frames_ = 0;
}

Executor::Frame Executor::execute(const wire::FrameHeader& header, std::span<const std::byte> body) {
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
  state.usage.received(bytes);
  const Frame end = header.message < wire::first_call ? control(header, body) : call(header, body);
  if (end != Frame::executed) return end;
  if ((header.flags & wire::flag_ask) != 0) {
    unacknowledged_bytes_ = unacknowledged_frames_ = 0;
  } else {
    acknowledge(bytes);
  }
  return end;
}

void Executor::received(const wire::FrameHeader& header) {
  if (!repeating_) received_ = header.sequence;
}

void Executor::acknowledge(std::uint64_t bytes) {
  unacknowledged_bytes_ += bytes;
  ++unacknowledged_frames_;
  if (unacknowledged_bytes_ < unacknowledged_bytes && unacknowledged_frames_ < unacknowledged_frames) return;
  unacknowledged_bytes_ = unacknowledged_frames_ = 0;
  if (!outlet.try_tell_progress(received_)) completions.nudge();
}

Executor::Frame Executor::execute_unnumbered(const wire::FrameHeader& header,
                                             std::span<const std::byte> body) {
  if (header.flags != 0) return Frame::senseless;
  switch (static_cast<wire::Control>(header.message)) {
    case wire::Control::taken: {
      wire::FrameNumber last;
      return wire::unpack(body, last) && outlet.taken(last.number) ? Frame::executed : Frame::senseless;
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

Executor::Frame Executor::repeat(std::uint32_t lane, std::uint64_t sequence) {
  LinkState::Reply ask;
  switch (outlet.repeat(lane, sequence, ask)) {
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
  if (ask.context != 0 && !handles.find(wire::Kind::context, ask.context, home)) {
    Answer none;
    reply(header, CUDA_ERROR_CONTEXT_IS_DESTROYED, wire::Status::ok, none);
    return Frame::executed;
  }
  const CUcontext before = current_;
  if (home != before) static_cast<void>(select(home));
  repeating_ = true;
  payload_left_ = 0;
  const Frame end = call(header, std::span<const std::byte>(ask.bytes).subspan(sizeof(header)));
  repeating_ = false;
  if (home != before) static_cast<void>(select(before));
  return end;
}

void Executor::client_is_gone() {
  const std::lock_guard serving(serving_);
  if (served_ == nullptr && host_calls.give_up()) given_up_ = true;
}

std::optional<LinkState> Executor::conversation() {
  if (lanes_.active() != 0) return std::nullopt;
  LinkState state;
  if (!conversing_) return state;
  state.client = client_pid_;
  state.connection = client_connection_;
  state.received = received_;
  state.context = name_of_current();
  {
    const std::lock_guard lock(deferring_);
    state.deferred_error = deferred_.error;
    state.deferred_message = deferred_.message;
  }
  completions.deliver();  // what is complete is said, that is kept
  outlet.save(state);
  return state;
}

void Executor::go_on_from(const LinkState& state) {
  if (state.client == 0) return;
  end_conversation();
  client_pid_ = state.client;
  client_connection_ = state.connection;
  received_ = state.received;
  executed.store(received_, std::memory_order_release);
  CUcontext context = nullptr;
  if (state.context != 0 && handles.find(wire::Kind::context, state.context, context)) {
    static_cast<void>(select(context));
  }
  if (state.deferred_error != CUDA_SUCCESS) {
    defer(static_cast<CUresult>(state.deferred_error), static_cast<std::uint16_t>(state.deferred_message));
  }
  if (!printed_) printed_.emplace();
  completions.open(home_, [this] { send_output(); });
  host_calls.open();
  outlet.load(state);
  charges.doubt();
  shares.doubt();
  conversing_ = true;
}

}  // namespace gpupool::worker
