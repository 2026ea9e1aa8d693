// A call being executed, as its handler sees it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "worker/conversation/conversation.h"
#include "worker/conversation/waiting_call.h"
#include "worker/device_time/device_work.h"
#include "worker/session/equipment.h"
#include "worker/session/session.h"

namespace gpupool::worker {

/// What a handler needs: the objects, the devices' work, the way to the client, and its own answer. Lives
/// until the answer has been sent, or the rest of the call was left to another thread: Wait::finish must not
/// hold it.
class Call {
 public:
  /// Of the client's `lane`. `answer` is what the reply will say.
  Call(Conversation& in, Answer& answer, std::uint32_t lane)
      : conversation(in),
        session(in.session()),
        equipment(in.equipment()),
        work(in.work()),
        api(equipment.api),
        handles(session.handles),
        answer_(answer) {
    session.serves_lane(lane);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Conversation& conversation;
  Session& session;
  Equipment& equipment;
  DeviceWork& work;
  const DriverApi& api;
  HandleTable& handles;

  /// The driver's device for the client's ordinal; false for an unknown one.
  [[nodiscard]] bool device(std::int32_t ordinal, CUdevice& out) const {
    return equipment.device(ordinal, out);
  }
  /// The client's ordinal of a device of the driver; -1 for one that is not the session's.
  [[nodiscard]] std::int32_t ordinal(CUdevice device) const { return equipment.ordinal(device); }
  [[nodiscard]] CUcontext current() const { return session.current(); }
  /// The primary context of the client's device; null for an unknown one.
  [[nodiscard]] CUcontext primary(std::int32_t ordinal) const {
    CUcontext found = nullptr;
    const auto index = static_cast<std::uint32_t>(ordinal);
    static_cast<void>(
        handles.find(wire::Kind::context, wire::Handle{wire::Kind::context, 0, index}.value(), found));
    return found;
  }

  /// Before a call that gives the device work on `stream` of the current context. Returns when it is the
  /// session's turn; an error is the call's. Calls of one `key` take about the same time.
  /// `kernel`: a launch's name, which must live until it has been launched.
  [[nodiscard]] CUresult submits(CUstream stream, std::uint64_t kernels = 0, std::uint64_t key = 0,
                                 std::string_view kernel = {}) {
    return work.submits(stream, session.captures(stream), kernels, key, kernel);
  }
  /// The same before a function of the client's.
  [[nodiscard]] CUresult submits_function(CUstream stream) {
    return work.submits_function(stream, session.captures(stream));
  }
  /// A copy between the connection and device memory: use of the share that gives the device no work.
  void touches_memory() { work.touches_memory(); }
  /// The same, by the copy engine and in the order of `stream` of the current context.
  void copies(CUstream stream) { work.copies(stream); }
  /// Before a call that may wait for the device.
  void waits() { work.waits(); }
  /// Before an object of the driver is destroyed.
  void retires(const void* object) { conversation.retires(object); }
  /// Before `stream` is destroyed or begins to capture.
  void forgets(CUstream stream) {
    retires(stream);
    equipment.parking.obstacles.capture_ended(stream);
    work.forgets(stream);
  }
  /// Before `stream` begins to capture.
  void begins_capture(CUstream stream) {
    work.before_capture();
    forgets(stream);
  }
  /// Before a context is destroyed.
  void abandon_context(CUcontext context) { conversation.abandon_context(context); }

  /// Payload of the request: what has not been taken is skipped afterwards.
  [[nodiscard]] std::uint64_t payload_left() const { return conversation.payload_left(); }
  [[nodiscard]] bool take_payload(void* into, std::size_t size) {
    return conversation.take_payload(into, size);
  }
  /// Payload for the reply.
  void reply_payload(Payload payload) { answer_.payload = std::move(payload); }
  /// The reply fields are sent although the call fails.
  void keep_fields_on_error() { answer_.keep_fields = true; }
  /// Leaves the rest of the call to a thread that may wait. The handler's own result must be CUDA_SUCCESS,
  /// and its reply fields are those that count.
  void leave(Wait wait) { wait_ = std::move(wait); }
  /// What the handler has left, to the one who called it.
  [[nodiscard]] std::optional<Wait> take_wait() { return std::exchange(wait_, std::nullopt); }

 private:
  Answer& answer_;
  std::optional<Wait> wait_;
};

}  // namespace gpupool::worker
