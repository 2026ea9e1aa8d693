#include "worker/conversation/conversation.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "generated/message_ids.h"
#include "generated/wire/control.h"
#include "profile/device_profile.h"

namespace gpupool::worker {
namespace {

constexpr auto patience = std::chrono::seconds(5);
constexpr auto look_again = std::chrono::milliseconds(2);

}  // namespace

Conversation::Conversation(Equipment& equipment, DeviceWork& work, HostCalls& calls)
    : host_calls(calls),
      equipment_(equipment),
      work_(work),
      api_(equipment.api),
      state_(equipment.state),
      session_(std::in_place, equipment, work),
      completions(
          api_, outlet_, executed_, [this] { return take_deferred(); }, &equipment.parking.residence,
          [this] { nudged(); }) {}

Conversation::~Conversation() {
  end();  // calls that wait for the client would keep the threads that are joined now
}

ServeEnd Conversation::serve(wire::Stream& stream, std::span<const std::byte> hello) {
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
      goes_on = converse(receiver, stream);
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "gpupool-worker: connection ended by an error: %s\n", failure.what());
    }
    stream.shut_down();  // whoever still sends sees that there is nobody
    outlet_.close();
    work_.waits();
    if (!goes_on || spoiled_.load()) {
      const std::lock_guard lock(executing_);  // it may be being written down
      end();
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
bool Conversation::converse(wire::Receiver& receiver, wire::Stream& stream) {
  wire::FrameHeader header{};
  std::span<const std::byte> frame;
  const auto execute_now = [&] {
    Hold lock = hold();
    if (!may_go_on(lock)) return Frame::cut;
    const Frame end = execute(header, frame);
    if (end == Frame::executed && header.sequence != 0) publish_executed();
    return end;
  };
  while (true) {
    if (!receiver.has_frame()) {  // nothing left to do: a burst of device work ends here
      work_.waits();
      publish_obstacle(false);
      await_frame_or_lease(stream);
    } else if (work_.keeps_others_waiting()) {
      work_.waits();
    }
    if (!receiver.receive(header, frame)) return receiver.ended();
    Frame end = execute_now();
    if (end == Frame::later) work_.waits();  // nothing behind it is submitted meanwhile
    while (end == Frame::later) {
      if (stream.hung_up()) return true;  // it will be sent again
      std::this_thread::sleep_for(10 * look_again);
      end = execute_now();
    }
    if (end == Frame::cut) return !goodbye_;
    if (end == Frame::senseless) return false;
  }
}

bool Conversation::greet(wire::Stream& stream, const wire::FrameHeader& header,
                         const wire::HelloBody& hello) {
  const bool goes_on = hello.sent != 0 || hello.taken != 0;
  const bool known =
      !goes_on || (conversing_ && !given_up_.load() && hello.pid == client_pid_ && hello.sent >= received_);
  bool opened = known;
  try {
    const std::lock_guard lock(executing_);
    if (known && !goes_on) begin(hello);
    // A client that goes on needs no driver yet, and is not kept waiting for memory that is away.
    if (const Residence::Visit visit(&equipment_.parking.residence); visit)
      api_.cuCtxSetCurrent_(session_->current());  // of this thread
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "session not opened: %s\n", failure.what());
    opened = false;
  }
  wire::HelloReply answer;
  answer.fingerprint = table_fingerprint;
  for (const auto& arena : equipment_.arenas) {
    answer.devices.push_back({arena->base(), DeviceArena::span, arena->granularity(), arena->limit()});
  }
  if (known && !goes_on) {
    std::vector<std::uint64_t> rooms;
    for (const auto& device : answer.devices) rooms.push_back(device.limit);
    shares_.begin(std::move(rooms));
  }
  const std::string profile = [this] {
    const std::lock_guard lock(equipment_.parking.identity);
    return format_profile(equipment_.profile);
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
  if (opened && outlet_.open(stream, hello.taken,
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
void Conversation::begin(const wire::HelloBody& hello) {
  end();
  // Of one number may be several programs: by execv, in containers, one after the other.
  const bool another = client_pid_ != 0 && (used_ || client_pid_ != hello.pid);
  Residence::Visit visit(&equipment_.parking.residence);
  if ((another || !session_->is_open()) && !visit.wait([this] { return client_left(); }))
    throw std::runtime_error("the client left");
  if (another) renew_session();
  if (!session_->is_open()) {
    std::vector<std::uint64_t> bases(equipment_.devices.size());
    for (std::size_t n = 0; n < bases.size() && hello.arena_base != 0; ++n) {
      bases[n] = hello.arena_base + n * DeviceArena::span;
    }
    try {
      session_->open(bases);
    } catch (...) {
      renew_session();  // half of one would be taken for a whole by the next client
      throw;
    }
  }
  client_pid_ = hello.pid;
  open_ways();  // not before: what another process left behind is not this one's
  charges_.forget();
  conversing_ = true;
}

/// The parts that tell of the old session's objects let go of them before they end.
void Conversation::renew_session() {
  for (const CUcontext context : session_->contexts()) {
    session_->in_use.wait_unused(context);
    completions.forget_context(context);
    if (equipment_.math_libraries) {
      api_.cuCtxSetCurrent_(context);
      equipment_.math_libraries->forget(
          context);  // its handles would not outlive it, and another may be there
    }
  }
  api_.cuCtxSetCurrent_(session_->home());
  copy_out_.reset();
  completions.reset();
  session_.emplace(equipment_, work_);
  used_ = executed_elsewhere_ = false;
  static_cast<void>(take_deferred());
}

void Conversation::open_ways() {
  printed_.begin();
  completions.open(session_->home(), [this] { send_output(); });
  host_calls.open();
}

void Conversation::end() {
  host_calls.close();
  lanes_.wait_idle();
  completions.close();
  outlet_.forget();
  printed_.clear();
  if (equipment_.driver_log) static_cast<void>(equipment_.driver_log->take());
  answer_ = {};  // what was left unfinished
  kept_.clear();
  conversing_ = false;
  spoiled_ = given_up_ = false;
  received_ = 0;
  unacknowledged_bytes_ = unacknowledged_frames_ = 0;
}

bool Conversation::client_left() {
  const std::lock_guard lock(serving_);
  return served_ != nullptr && served_->hung_up();
}

void Conversation::spoil() {
  spoiled_ = true;
  const std::lock_guard serving(serving_);
  if (served_ != nullptr) served_->shut_down();
}

void Conversation::client_is_gone() {
  const std::lock_guard serving(serving_);
  if (served_ == nullptr && host_calls.give_up()) given_up_ = true;
}

/// Nothing is waited for: a thread that executes a frame may be held up in the driver.
bool Conversation::drained() {
  const Residence::Visit visit(&equipment_.parking.residence);
  if (!visit) return true;  // memory leaves only when all work is done
  const std::unique_lock lock(executing_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const auto pending = [this] {
    const std::lock_guard serving(serving_);
    return served_ != nullptr && served_->holds_unread();
  };
  return !pending() && !busy();
}

void Conversation::make_do(const std::vector<ShareWish>& wishes, int wait_ms) {
  shares_.wish(wishes);
  completions.nudge();
  static_cast<void>(shares_.await_answers(std::chrono::milliseconds(wait_ms)));
}

void Conversation::shares_decided() {
  shares_.decided();
  completions.nudge();
}

/// The written state must not change behind the image's back,
/// and no frame may be acknowledged that the image does not know of. The next lease shows that this worker
/// keeps the session.
bool Conversation::may_go_on(Hold& lock) {
  while (written_epoch_ != 0) {
    if (state_.gate.view(boottime_ns()).epoch > written_epoch_) {
      written_epoch_ = 0;
      break;
    }
    if (served_->hung_up()) return false;  // set by the thread that this is
    lock.unlock();
    std::this_thread::sleep_for(10 * look_again);
    lock.lock();
  }
  return true;
}

Conversation::Hold Conversation::stand_still() {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Hold lock(executing_, std::defer_lock);
  while (std::chrono::steady_clock::now() < deadline) {
    if (!lock.try_lock_until(deadline)) return lock;
    api_.cuCtxSetCurrent_(session_->current());
    // Asked, not waited for: a stream may wait for a function of the client's, whose end is a frame.
    // A stream that was destroyed is not among those that a context knows of, but its work is counted.
    if (!busy() && completions.idle() && session_->listed_idle()) return lock;
    lock.unlock();
    std::this_thread::sleep_for(look_again);
  }
  return lock;
}

void Conversation::publish_obstacle(bool thorough) {
  // Not longer than a short call takes: the one that asks has other things to do.
  const Hold lock(executing_, std::chrono::milliseconds(1));
  if (lock.owns_lock()) move_obstacle_.store(session_->obstacle_to_moving(thorough));
}

MoveObstacle Conversation::look_for_obstacle() {
  const MoveObstacle found = session_->obstacle_to_moving(true);
  move_obstacle_.store(found);
  return found;
}

void Conversation::catch_up_elsewhere() {
  execute_kept();
  executed_elsewhere_ = true;
  publish_executed();
  work_.waits();
}

CopyOut& Conversation::copy_out() {
  if (!copy_out_) copy_out_.emplace(api_, session_->home());
  return *copy_out_;
}

void Conversation::retires(const void* object) {
  session_->in_use.wait_unused(object);
  completions.forget(object, CUDA_ERROR_INVALID_HANDLE);
  session_->graphs.captured_events.erase(object);
}

void Conversation::abandon_context(CUcontext context) {
  session_->in_use.wait_unused(context);
  completions.forget_context(context);
  if (copy_out_) copy_out_->forget(context);
  if (equipment_.math_libraries) {
    api_.cuCtxSetCurrent_(context);  // what the libraries hold ends in the context that it was made in
    equipment_.math_libraries->forget(context);
    api_.cuCtxSetCurrent_(session_->current());
  }
  session_->abandon_context(context);
}

std::optional<LinkState> Conversation::link_state() {
  if (lanes_.active() != 0) return std::nullopt;
  LinkState state;
  if (!conversing_) return state;
  state.client = client_pid_;
  state.connection = client_connection_;
  state.received = received_;
  state.context = session_->name_of_current();
  {
    const std::lock_guard lock(deferring_);
    state.deferred_error = deferred_.error;
    state.deferred_message = deferred_.message;
  }
  completions.deliver(false);  // what is complete is said, that is kept
  // What no push has told yet comes along as pushes. Here it stays, in case that the session does.
  const std::lock_guard printing(printing_);
  prints_left_ = false;
  outlet_.save(state);
  const std::string rest = printed_.rest();
  for (std::string_view text = rest; !text.empty();) {
    const auto piece = text.substr(0, PrintedOutput::most_at_once);
    Outlet::append(state, wire::Control::output, piece, wire::packed(wire::Output{STDOUT_FILENO}).bytes());
    text.remove_prefix(piece.size());
  }
  state.kept.assign(kept_.all().begin(), kept_.all().end());
  return state;
}

bool Conversation::go_on_from(const LinkState& state) {
  if (state.client == 0) return true;
  end();
  for (const KeptFrame& frame : state.kept) {
    if (!keep(frame)) return false;
  }
  client_pid_ = state.client;
  client_connection_ = state.connection;
  received_ = state.received;
  publish_executed();
  CUcontext context = nullptr;
  if (state.context != 0 && session_->handles.find(wire::Kind::context, state.context, context)) {
    static_cast<void>(session_->select(context));
  }
  if (state.deferred_error != CUDA_SUCCESS) {
    defer(static_cast<CUresult>(state.deferred_error), static_cast<std::uint16_t>(state.deferred_message));
  }
  open_ways();
  outlet_.load(state);
  charges_.doubt();
  shares_.doubt();
  conversing_ = true;
  return true;
}

}  // namespace gpupool::worker
