// What a client and a session say to each other: it goes on when the connection that carried it breaks.
//
// One thread reads frames and executes them, each once, in the order in which they arrive; a call that waits
// for the device is admitted in its place and then waits on a thread of its own.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/receiver.h"
#include "wire/transport/stream.h"
#include "worker/conversation/call_fate.h"
#include "worker/conversation/charge_teller.h"
#include "worker/conversation/completions.h"
#include "worker/conversation/copy_out.h"
#include "worker/conversation/host_calls.h"
#include "worker/conversation/kept_frames.h"
#include "worker/conversation/lane_pool.h"
#include "worker/conversation/limit_teller.h"
#include "worker/conversation/link_state.h"
#include "worker/conversation/outlet.h"
#include "worker/conversation/waiting_call.h"
#include "worker/device_time/device_work.h"
#include "worker/driver/printed_output.h"
#include "worker/image/move_rules.h"
#include "worker/lease/worker_state.h"
#include "worker/session/equipment.h"
#include "worker/session/session.h"

namespace gpupool::worker {

struct Dispatch;  // dispatch.h

/// The session belongs to the process that the conversation is with: when another one comes, both begin anew.
class Conversation {
 public:
  /// The announcements of `host_calls` go to `completions`.
  Conversation(Equipment& equipment, DeviceWork& work, HostCalls& host_calls);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  [[nodiscard]] Equipment& equipment() { return equipment_; }
  [[nodiscard]] DeviceWork& work() { return work_; }
  /// A new one as soon as another process has begun a conversation, so nobody keeps the reference.
  [[nodiscard]] Session& session() { return *session_; }

  /// Serves one authenticated client until the connection ends. `stream` is positioned right after the HELLO
  /// frame, whose reply is sent here. `hello` is the HELLO frame (header and body) as received. One call at a
  /// time; a later call resumes the same session.
  ServeEnd serve(wire::Stream& stream, std::span<const std::byte> hello);

  // The control thread calls the next ones while `serve` runs; they do not wait for the devices.

  /// Whether everything that was received is executed and complete on the devices.
  [[nodiscard]] bool drained();
  /// Whether a call waits, or the devices have work.
  [[nodiscard]] bool busy() { return lanes_.active() > 0 || !work_.is_complete(); }
  /// The lease is over and its work is stopped: calls that wait for that, and may be made once more under the
  /// next lease, are refused soon, unless there is a lease by then. The others have done something already,
  /// and wait.
  void work_stopped() { completions.nudge(); }
  /// The client has been away for longer than it may: nothing waits for it any more.
  void client_is_gone();
  /// The shares may have another size: the client is told soon.
  void shares_decided();
  /// Drops what kernels have printed beyond what is kept for a client that does not hear of it.
  void trim_output() { printed_.trim(); }
  /// Looks what keeps the session from going to another worker, if no call is being executed.
  void publish_obstacle(bool thorough);

  /// What that was, as of the last look. Any thread.
  [[nodiscard]] MoveObstacle move_obstacle() const { return move_obstacle_.load(); }
  /// Asks the client to make do with smaller shares and waits at most `wait_ms` for its answer;
  /// shares_decided() must follow. One call at a time.
  void make_do(const std::vector<ShareWish>& wishes, int wait_ms);

  // Standing still, for who carries the session away.

  /// As long as it is held no frame is executed and no conversation begins or ends.
  using Hold = std::unique_lock<std::timed_mutex>;
  /// Waits for the frame that is being executed.
  [[nodiscard]] Hold hold() { return Hold(executing_); }
  /// The same at a moment when nothing is under way. Not owned: that did not come in time.
  [[nodiscard]] Hold stand_still();
  /// Executes what was kept and needs no lease, on another thread than the one that serves. Precondition:
  /// held, and memory is here.
  void catch_up_elsewhere();
  /// What keeps the session from going, after a thorough look. Precondition: held.
  MoveObstacle look_for_obstacle();
  /// The session was written down under this epoch: it stands still until the next lease shows that this
  /// worker keeps it. Precondition: held.
  void was_written(std::uint32_t epoch) { written_epoch_ = epoch; }
  /// Where the conversation stands, to go with the session to another worker; nothing while a call is under
  /// way. Precondition: held.
  [[nodiscard]] std::optional<LinkState> link_state();
  /// The session was taken over from another worker: its objects are in place already. Nobody is served yet.
  /// False: no worker would have kept what it brings.
  [[nodiscard]] bool go_on_from(const LinkState& state);
  /// The process that the session belongs to; 0: nobody has come yet.
  [[nodiscard]] std::uint64_t client() const { return client_pid_; }
  void belongs_to(std::uint64_t client) { client_pid_ = client; }

  // What handlers need, through their Call.

  HostCalls& host_calls;
  /// Payload of the request being executed.
  [[nodiscard]] std::uint64_t payload_left() const { return payload_left_; }
  [[nodiscard]] bool take_payload(void* into, std::size_t size);
  CopyOut& copy_out();
  /// Before an object of the driver is destroyed: waits for the calls that use it, and tells nothing of it
  /// any more.
  void retires(const void* object);
  /// The same for a context with all that is in it.
  void abandon_context(CUcontext context);

 private:
  /// What became of a frame.
  enum class Frame {
    executed,
    later,     ///< nothing has happened yet, and nothing behind it may: to be executed once more in a moment
    cut,       ///< the connection broke in it: it will be sent again, and nothing has happened
    senseless  ///< no client says such a thing: the conversation ends
  };
  struct WaitingCall;

  // conversation.cpp: from one connection to the next.
  bool converse(wire::Receiver& receiver, wire::Stream& stream);
  bool greet(wire::Stream& stream, const wire::FrameHeader& header, const wire::HelloBody& hello);
  void begin(const wire::HelloBody& hello);
  void end();
  void renew_session();
  void open_ways();
  bool may_go_on(Hold& held);
  [[nodiscard]] bool client_left();
  void spoil();

  // conversation_frames.cpp: each frame once.
  Frame execute(const wire::FrameHeader& header, std::span<const std::byte> body);
  Frame execute_unnumbered(const wire::FrameHeader& header, std::span<const std::byte> body);
  Frame control(const wire::FrameHeader& header, std::span<const std::byte> body);
  void tell_stats(wire::Writer& out, bool reset_peak);
  Frame repeat(std::uint32_t lane, std::uint64_t sequence);
  void received(const wire::FrameHeader& header);
  void acknowledge(std::uint64_t bytes);

  // conversation_calls.cpp: calls and their answers.
  Frame call(const wire::FrameHeader& header, std::span<const std::byte> body);
  [[nodiscard]] bool refuse_post(const wire::FrameHeader& header, std::span<const std::byte> body);
  void wait_for_devices(const wire::FrameHeader& header);
  void begin_wait(const wire::FrameHeader& header, const ReplyKeeping& keeping, std::uint64_t start_ns,
                  Wait wait);
  void finish(WaitingCall& call);
  [[nodiscard]] bool stopped_without_lease();
  void refuse(WaitingCall& call);
  void refuse_waiting();
  void reply(const wire::FrameHeader& header, CUresult result, wire::Status status, Answer& answer,
             const ReplyKeeping& keeping = {});
  void nudged();
  void send_output();
  void send_driver_log();
  void defer(CUresult error, std::uint16_t message);
  Deferred take_deferred();

  // conversation_kept.cpp: posts that must wait, for memory or for a lease.
  [[nodiscard]] bool attached() const;
  CallFate decide(const wire::FrameHeader& header, const Residence::Visit& visit, Admission& admission);
  Frame keep(const wire::FrameHeader& header, std::span<const std::byte> body);
  [[nodiscard]] bool keep(const KeptFrame& frame);
  void execute_kept();
  void publish_executed();
  [[nodiscard]] bool waits_for_lease() const;
  [[nodiscard]] bool execute(const KeptFrame& frame);
  [[nodiscard]] bool had_no_turn(CUresult result, const Dispatch& entry) const;
  void await_frame_or_lease(wire::Stream& stream);

  Equipment& equipment_;
  DeviceWork& work_;
  const DriverApi& api_;
  WorkerState& state_;
  std::optional<Session> session_;  // never empty but while one is made new
  std::optional<CopyOut> copy_out_;
  PrintedOutput printed_;
  std::mutex printing_;  // held from taking printed text to its push: pieces keep their order
  std::atomic<bool> prints_left_{false};  // text that is to go when the client has taken some
  Outlet outlet_;
  ChargeTeller charges_;
  LimitTeller shares_;

  bool conversing_ = false;  // a conversation has begun and may be gone on with
  std::uint64_t client_pid_ = 0;
  std::uint64_t client_connection_ = 0;
  bool used_ = false;           // the session has objects, perhaps: the next program begins a new one
  std::uint64_t received_ = 0;  // number of the last frame executed; 0: any number may be the first
  std::uint64_t unacknowledged_bytes_ = 0, unacknowledged_frames_ = 0;
  std::atomic<bool> given_up_{false};  // what the client was waited for is not any more
  std::atomic<bool> spoiled_{false};   // a call has failed in a way that leaves its answer open

  std::mutex waiting_;  // protects the next member
  std::list<std::weak_ptr<WaitingCall>> waiting_calls_;

  wire::Receiver* receiver_ = nullptr;
  bool repeating_ = false;  // the call being executed has been executed before
  bool goodbye_ = false;
  std::uint64_t payload_left_ = 0;
  KeptFrames kept_;                          // of this conversation; protected by executing_
  std::span<const std::byte> kept_payload_;  // where the payload comes from, if not from the receiver
  Answer answer_;                            // of the call being executed

  std::mutex deferring_;  // protects the next member
  Deferred deferred_;

  /// Held while a frame is executed, so that drain can tell, and while a conversation begins or ends.
  std::timed_mutex executing_;
  /// Under this epoch the session was written down, and has stood still since; 0: it was not. Protected by
  /// executing_.
  std::uint32_t written_epoch_ = 0;
  bool executed_elsewhere_ = false;  // by another thread than the one that serves; likewise
  std::atomic<MoveObstacle> move_obstacle_{MoveObstacle::none};
  std::mutex serving_;  // protects the next member
  wire::Stream* served_ = nullptr;

  std::atomic<std::uint64_t> executed_{0};  // all frames up to this number have been executed

 public:
  Completions completions;  // its thread uses the members above

 private:
  LanePool lanes_;  // the last member: its threads use the others
};

}  // namespace gpupool::worker
