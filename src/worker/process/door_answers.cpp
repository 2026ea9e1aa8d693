#include "worker/process/door_answers.h"

#include <algorithm>
#include <cstring>

#include "generated/wire/control.h"
#include "wire/bytes.h"

namespace gpupool::worker {
namespace {

constexpr std::int32_t device_unavailable = 46;  // CUDA_ERROR_DEVICE_UNAVAILABLE

/// Nothing has been sent on the stream yet, so there is room for a few hundred bytes and this does not wait.
template <class Encode>
void reply(wire::Stream& stream, wire::Control message, std::uint64_t sequence,
           const wire::ReplyHeader& result, Encode encode) {
  wire::Buffer frame;
  wire::FrameHeader header{};
  frame.append(&header, sizeof(header));
  frame.append(&result, sizeof(result));
  wire::Writer out(frame);
  encode(out);
  header.length = static_cast<std::uint32_t>(frame.size());
  header.message = static_cast<std::uint16_t>(message);
  header.flags = wire::flag_reply;
  header.sequence = sequence;
  std::memcpy(frame.data(), &header, sizeof(header));
  (void)stream.send(frame.bytes());  // who hangs up does not want to know
}

constexpr wire::ReplyHeader done_header{0, 0, 0, wire::Status::ok};

}  // namespace

void refuse_seat(wire::Stream& stream, std::uint64_t sequence) {
  reply(stream, wire::Control::hello, sequence, {device_unavailable, 0, 0, wire::Status::closed},
        [](wire::Writer&) {});
}

void answer_inquiry(wire::Stream& stream, std::uint64_t sequence, const WorkUnderWay& work,
                    std::int64_t now_ns) {
  const WorkView view = work.view();
  const SessionFailure failure = work.failure();
  wire::Inquiry answer;
  answer.state = view.state;
  answer.kernel = view.kernel;
  answer.awaits_turn = work.awaits_turn.load(std::memory_order_relaxed);
  if (view.since_ns != 0) {
    answer.milliseconds =
        static_cast<std::uint64_t>(std::max<std::int64_t>(now_ns - view.since_ns, 0) / 1'000'000);
  }
  answer.failure = failure.error;
  answer.failed_kernel = failure.kernel;
  reply(stream, wire::Control::inquire, sequence, done_header,
        [&](wire::Writer& out) { answer.encode(out); });
}

void confirm_end(wire::Stream& stream, std::uint64_t sequence) {
  reply(stream, wire::Control::end_session, sequence, done_header, [](wire::Writer&) {});
}

}  // namespace gpupool::worker
