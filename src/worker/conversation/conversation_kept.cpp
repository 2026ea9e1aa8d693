// Posts that can't be executed yet: what is kept, until when, and what waits behind it. call_fate.h decides.
#include <utility>

#include "generated/message_ids.h"
#include "worker/conversation/call.h"
#include "worker/conversation/conversation.h"
#include "worker/conversation/dispatch.h"

namespace gpupool::worker {
namespace {

constexpr int look_for_lease_ms = 100;

const Dispatch& row_of(std::uint16_t message) {
  return dispatch_table[message - wire::first_call];
}

}  // namespace

bool Conversation::attached() const {
  return state_.gate.view(boottime_ns()).state == LeaseState::attached;
}

/// What is kept and can be executed now is executed first: nothing overtakes it.
CallFate Conversation::decide(const wire::FrameHeader& header, const Residence::Visit& visit,
                              Admission& admission) {
  if (visit) execute_kept();
  const Dispatch& entry = row_of(header.message);
  admission = entry.needs_lease ? state_.gate.admits(header.epoch, boottime_ns()) : Admission::ok;
  if (admission == Admission::ok && visit && kept_.empty()) return CallFate::run;
  const ArrivedCall call{
      .admission = admission,
      .needs_lease = entry.needs_lease,
      .is_ask = entry.is_ask,
      .bulk = payload_left_ > 0,
      .refused_by_push = entry.refused_by_push,
      .ends_what_is_waited_for = header.message == static_cast<std::uint16_t>(MessageId::HostFunctionDone)};
  const CallFate fate = fate_of(call, {static_cast<bool>(visit), attached(), !kept_.empty()});
  if (fate != CallFate::keep || kept_.has_room(header.length + payload_left_)) return fate;
  return entry.needs_lease ? CallFate::refuse : CallFate::wait;
}

Conversation::Frame Conversation::keep(const wire::FrameHeader& header, std::span<const std::byte> body) {
  KeptFrame frame{header.sequence, header.message, header.lane, {body.begin(), body.end()}, {}};
  frame.payload.resize(payload_left_);
  if (payload_left_ > 0 && !take_payload(frame.payload.data(), payload_left_)) return Frame::cut;
  kept_.add(std::move(frame));
  received(header);
  state_.usage.post();
  return Frame::executed;
}

/// Another worker has kept it. False: none would have.
bool Conversation::keep(const KeptFrame& frame) {
  const std::size_t row = frame.message - std::size_t{wire::first_call};
  if (row >= message_count || dispatch_table[row].is_ask || dispatch_table[row].refused_by_push ||
      !kept_.has_room(frame.bytes()))
    return false;
  std::uint64_t payload = 0;
  if (dispatch_table[row].has_payload) {
    if (frame.body.size() < sizeof(payload)) return false;
    if (!wire::read_front(std::span(frame.body).last(sizeof(payload)), payload)) return false;
  }
  if (payload != frame.payload.size()) return false;
  kept_.add(frame);
  return true;
}

/// The client takes what it is told of as complete for all that came before it.
void Conversation::publish_executed() {
  executed_.store(kept_.empty() ? received_ : kept_.first().sequence - 1, std::memory_order_release);
}

/// Whether something is kept that only a lease lets go on.
bool Conversation::waits_for_lease() const {
  return !kept_.empty() && row_of(kept_.first().message).needs_lease;
}

/// As far as the lease allows. Precondition: memory is here.
void Conversation::execute_kept() {
  // Another thread may have executed what had been kept, and have selected a context.
  if (std::exchange(executed_elsewhere_, false)) static_cast<void>(session_->select(session_->current()));
  while (!kept_.empty() && (!row_of(kept_.first().message).needs_lease || attached()) &&
         execute(kept_.first())) {
    kept_.drop_first();
  }
}

/// False: the lease ended before it could be executed.
bool Conversation::execute(const KeptFrame& frame) {
  const Dispatch& entry = row_of(frame.message);
  work_.executes_under(entry.needs_lease ? state_.gate.view(boottime_ns()).epoch : 0);
  const std::uint64_t payload_behind = std::exchange(payload_left_, frame.payload.size());
  kept_payload_ = frame.payload;
  Answer unanswered;
  wire::Reader in(frame.body);
  wire::Writer out(unanswered.fields);
  CUresult result = CUDA_SUCCESS;
  {
    Call call(*this, unanswered, frame.lane);
    result = entry.run(call, in, out);
  }
  kept_payload_ = {};
  const bool untouched = std::exchange(payload_left_, payload_behind) == frame.payload.size();
  if (untouched && had_no_turn(result, entry)) return false;
  if (result != CUDA_SUCCESS) {
    defer(result == malformed ? CUDA_ERROR_INVALID_VALUE : result, frame.message);
  } else if (move_rules[frame.message - wire::first_call].names != nullptr) {
    session_->journal.note(frame.message, frame.lane, session_->name_of_current(), frame.body,
                           session_->handles);
  }
  return true;
}

/// Whether a post's lease ended while it waited for its turn: then it has done nothing yet, and is kept. The
/// next lease may be there already.
bool Conversation::had_no_turn(CUresult result, const Dispatch& entry) const {
  return result == CUDA_ERROR_DEVICE_UNAVAILABLE && entry.needs_lease && !entry.is_ask &&
         !entry.refused_by_push && state_.gate.admits(work_.epoch_of_call(), boottime_ns()) != Admission::ok;
}

/// A client that says nothing may wait for what was kept.
void Conversation::await_frame_or_lease(wire::Stream& stream) {
  do {
    Hold lock = hold();
    if (kept_.empty() || !may_go_on(lock)) return;
    const Residence::Visit visit(&equipment_.parking.residence);
    if (visit && attached()) {
      execute_kept();
      work_.waits();
    }
    publish_executed();
    if (!waits_for_lease()) return;
  } while (!stream.readable(look_for_lease_ms));
}

}  // namespace gpupool::worker
