// Executes one session's calls against a driver, in the order in which they arrive. One thread reads and
// executes; a call that waits for the device is admitted in its place and then waits on a thread of its own.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profile/device_profile.h"
#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/receiver.h"
#include "wire/transport/stream.h"
#include "worker/conversation/charge_teller.h"
#include "worker/conversation/completions.h"
#include "worker/conversation/copy_out.h"
#include "worker/conversation/host_calls.h"
#include "worker/conversation/lane_pool.h"
#include "worker/conversation/limit_teller.h"
#include "worker/conversation/link_state.h"
#include "worker/conversation/outlet.h"
#include "worker/conversation/staging.h"
#include "worker/conversation/waiting_call.h"
#include "worker/device_time/busy_streams.h"
#include "worker/device_time/device_timer.h"
#include "worker/device_time/device_turns.h"
#include "worker/driver/context_limits.h"
#include "worker/driver/driver.h"
#include "worker/driver/driver_log.h"
#include "worker/driver/printed_output.h"
#include "worker/driver/software_work.h"
#include "worker/image/session_journal.h"
#include "worker/lease/session_contract.h"
#include "worker/objects/array_shares.h"
#include "worker/objects/device_arena.h"
#include "worker/objects/device_resources.h"
#include "worker/objects/export_door.h"
#include "worker/objects/export_table.h"
#include "worker/objects/graph_table.h"
#include "worker/objects/handle_table.h"
#include "worker/objects/image_cache.h"
#include "worker/objects/images.h"
#include "worker/objects/linker.h"
#include "worker/objects/objects_in_use.h"
#include "worker/objects/physical_memory.h"
#include "worker/residence/parking.h"

namespace gpupool::worker {

/// The handlers (generated, and run_* in the other files of this folder) use the public members.
class ChunkSource;
class SessionResume;
class SessionWriter;
struct SessionImage;

class Executor final : public SessionExecutor {
 public:
  Executor(const std::string& driver_path, WorkerState& state);
  ~Executor() override;

  // SessionExecutor
  ServeEnd serve(wire::Stream& stream, std::span<const std::byte> hello) override;
  [[nodiscard]] bool drained() override;
  [[nodiscard]] bool computes() override;
  bool stop_work() override;
  void go_on() override;
  void look_at_work() override;
  void client_is_gone() override;
  void tick() override;
  [[nodiscard]] MemoryReport memory_report() const override;
  MoveResult park(int drain_ms) override;
  MoveResult resume(const std::vector<DeviceChange>& devices) override;
  MoveResult export_image(const std::string& folder) override;
  void hand_over(wire::Stream& stream) override;
  void make_do(const std::vector<ShareWish>& wishes, int wait_ms) override;
  void shares_decided() override;

  /// Takes up a session that another worker wrote down. On the thread that will serve it, before anybody is
  /// served. Throws std::runtime_error.
  void resume_from(ChunkSource& source, const SessionImage& image);

  /// Where the conversation with the client stands, to go with the session to another worker; nothing while a
  /// call is under way. Precondition: no frame is executed (stand_still).
  [[nodiscard]] std::optional<LinkState> conversation();
  /// The session was taken over from another worker: its objects are in place already. Nobody is served yet.
  void go_on_from(const LinkState& state);

  // What handlers need.
  Driver driver;
  const DriverApi& api;
  HandleTable handles;
  ImageTable images;
  ImageCache image_cache;
  LinkTable links;
  ArrayShares arrays;
  ContextLimits limits;
  DeviceResources resources;
  std::map<std::uint64_t, std::uint64_t> green_contexts;  ///< client's handle -> of the context made of it
  std::map<std::uint64_t, std::shared_ptr<PhysicalMemory>> physical;  ///< by the client's handle
  ExportTable exports{random_office()};
  std::optional<ExportDoor> export_door;
  GraphTable graphs{handles};
  Outlet outlet;
  HostCalls host_calls{[this](const wire::HostFunction& call, std::function<void()> untold) {
    completions.announce(call, std::move(untold));
  }};
  Parking parking;
  ChargeTeller charges;
  LimitTeller shares;
  SessionJournal journal;
  WorkerState& state;

  /// The driver's device for the client's ordinal; false for an unknown one.
  [[nodiscard]] bool device(std::int32_t ordinal, CUdevice& out) const;
  /// The client's ordinal of a device of the driver; -1 for one that is not the session's.
  [[nodiscard]] std::int32_t ordinal(CUdevice device) const;
  [[nodiscard]] DeviceArena* arena(std::int32_t ordinal);
  /// The memory behind a range of an arena; null unless it is one allocation's.
  [[nodiscard]] std::shared_ptr<PhysicalMemory> memory_at(std::uint64_t address, std::uint64_t size) const;
  /// Compute capability of the session's devices (80, 90, 120, ...), which are of one kind.
  [[nodiscard]] unsigned capability() const;
  [[nodiscard]] bool is_software() const { return !profile_.devices.empty() && profile_.devices[0].software; }
  /// The memory account of the current context's device; null without a current context.
  [[nodiscard]] MemoryAccount* account_of_current();
  /// The arena that holds the whole range with memory the CPU can reach at the same addresses.
  [[nodiscard]] bool reachable_by_host(std::uint64_t address, std::uint64_t size) const;
  /// Whether the range may be read: mapped memory of an arena, or outside the arenas, where the driver knows.
  [[nodiscard]] bool readable(std::uint64_t address, std::uint64_t size) const;

  /// Before a call that gives the device work on `stream` of the current context. Returns when it is the
  /// session's turn; an error is the call's. Calls of one `key` take about the same time.
  /// `kernel`: a launch's name, which must live until it has been launched.
  [[nodiscard]] CUresult submits(CUstream stream, std::uint64_t kernels = 0, std::uint64_t key = 0,
                                 std::string_view kernel = {});
  /// A copy between the connection and device memory: use of the share that gives the device no work.
  void touches_memory() { state.usage.submitted(boottime_ns(), 0); }
  /// Before a call that may wait for the device.
  void waits();
  /// Before `stream` is destroyed or begins to capture.
  void forgets(CUstream stream);
  /// Before an object of the driver is destroyed.
  void retires(const void* object) {
    in_use.wait_unused(object);
    completions.forget(object);
  }
  /// Leaves the rest of the call being executed to a thread that may wait. The handler's own result must be
  /// CUDA_SUCCESS, and its reply fields are those that count.
  void leave(Wait wait) { wait_ = std::move(wait); }
  /// Stands in Wait::uses for all device memory.
  [[nodiscard]] const void* device_memory() const { return &arenas_; }
  CUresult select(CUcontext context);
  [[nodiscard]] CUcontext current() const { return current_; }
  void forgets_context(CUcontext context);
  /// Before a context is destroyed.
  void abandon_context(CUcontext context);
  /// Before a green context is destroyed: the context made of it goes with it.
  void abandon_green_context(std::uint64_t green);
  /// A mapping that was refused for want of a lease is no longer wanted; false when there was none.
  bool forget_refused_map(std::int32_t device, std::uint64_t address);
  /// Waits for everything on a device, whatever context it was given in.
  CUresult synchronize_device(CUdevice device);
  /// Whether `context` has finished what it was given, as far as is known without waiting.
  [[nodiscard]] bool idle(CUcontext context);
  /// All contexts of the session.
  [[nodiscard]] std::vector<CUcontext> contexts() const;
  /// Waits for everything on all devices of the session.
  CUresult synchronize_all();

  /// Payload of the request being executed: what has not been taken is skipped afterwards.
  [[nodiscard]] std::uint64_t payload_left() const { return payload_left_; }
  [[nodiscard]] bool take_payload(void* into, std::size_t size);
  /// Payload for the reply to the request being executed.
  void reply_payload(Payload payload) { answer_.payload = std::move(payload); }
  /// The reply fields of the call being executed are sent although it fails.
  void keep_fields_on_error() { answer_.keep_fields = true; }
  Staging& staging();
  CopyOut& copy_out();
  ObjectsInUse in_use;
  /// Number of the last frame whose execution has ended.
  std::atomic<std::uint64_t> executed{0};
  Completions completions;

  /// The primary contexts belong to the session, all others to the client.
  [[nodiscard]] bool is_primary(std::uint64_t context) const {
    return wire::Handle::from(context).index < devices_.size();
  }
  /// Remembers which device a context belongs to.
  void adopt_context(CUcontext context, CUdevice device) { device_of_[context] = device; }

 private:
  friend class SessionWriter;  // session_writer.h
  friend class SessionResume;  // session_resume.h

  /// What became of a frame.
  enum class Frame {
    executed,
    cut,       ///< the connection broke in it: it will be sent again, and nothing has happened
    senseless  ///< no client says such a thing: the conversation ends
  };

  bool converse(wire::Receiver& receiver);
  bool greet(wire::Stream& stream, const wire::FrameHeader& header, const wire::HelloBody& hello);
  void begin_conversation(const wire::HelloBody& hello);
  void end_conversation();
  Frame execute(const wire::FrameHeader& header, std::span<const std::byte> body);
  Frame execute_unnumbered(const wire::FrameHeader& header, std::span<const std::byte> body);
  Frame control(const wire::FrameHeader& header, std::span<const std::byte> body);
  Frame call(const wire::FrameHeader& header, std::span<const std::byte> body);
  Frame repeat(std::uint32_t lane, std::uint64_t sequence);
  void received(const wire::FrameHeader& header);
  void acknowledge(std::uint64_t bytes);
  void spoil();
  [[nodiscard]] std::uint64_t name_of_current() const;
  void begin_wait(const wire::FrameHeader& header, const ReplyKeeping& keeping, std::uint64_t start_ns);
  struct WaitingCall;
  void finish(WaitingCall& call);
  void refuse(WaitingCall& call);
  void reply(const wire::FrameHeader& header, CUresult result, wire::Status status, Answer& answer,
             const ReplyKeeping& keeping = {});
  void send_output();
  void send_driver_log();
  CUstream per_thread_stream();
  void defer(CUresult error, std::uint16_t message);
  Deferred take_deferred();
  /// The arenas begin at `bases`, by device, where the driver agrees.
  void open_devices(const std::vector<std::uint64_t>& bases);
  void reset();
  void end_arrays();
  void end_green_contexts();
  void retry_refused_maps();
  [[nodiscard]] std::string park_obstacle() const;
  void change_cards(const std::vector<std::pair<std::string, std::string>>& pairs);
  [[nodiscard]] bool client_left();
  void execute_kept();
  MoveObstacle obstacle_to_moving(bool thorough = true);
  void publish_obstacle(bool thorough);
  void charge_what_is_complete();
  [[nodiscard]] bool work_is_complete();
  bool drain(int timeout_ms);
  void refuse_waiting();
  bool may_go_on(std::unique_lock<std::timed_mutex>& lock);
  std::unique_lock<std::timed_mutex> stand_still();
  MoveResult write_session(const std::function<MoveResult(SessionWriter&)>& write);

  [[nodiscard]] std::size_t current_ordinal();
  [[nodiscard]] bool keeps_others_waiting() const;
  [[nodiscard]] bool captured(CUstream stream);

  SoftwareWork software_work_;
  std::optional<DeviceTimer> timer_;
  std::optional<DeviceTurns> turns_;
  std::atomic<std::uint32_t> call_epoch_{0};  // of the call being executed; 0: it needs no lease
  CUcontext ordinal_context_ = nullptr;       // whose device's ordinal is the next member
  std::size_t ordinal_ = 0;
  std::vector<CUdevice> devices_;
  std::vector<std::unique_ptr<DeviceArena>> arenas_;
  std::map<CUcontext, CUdevice> device_of_;
  DeviceProfile profile_;  // of the session's devices
  std::optional<PrintedOutput> printed_;
  std::optional<DriverLog> driver_log_;  // of a software GPU: NVIDIA's repeats what results say
  std::optional<Staging> staging_;
  std::optional<CopyOut> copy_out_;
  BusyStreams busy_;
  CUcontext current_ = nullptr;
  CUcontext home_ = nullptr;  // the first device's primary context, which lives as long as the session
  std::uint64_t client_pid_ = 0;

  // Of the conversation.
  bool conversing_ = false;  // one has begun and may be gone on with
  std::uint64_t client_connection_ = 0;
  std::uint64_t received_ = 0;  // number of the last frame executed; 0: any number may be the first
  std::uint64_t unacknowledged_bytes_ = 0, unacknowledged_frames_ = 0;
  std::atomic<bool> given_up_{false};  // what the client was waited for is not any more
  std::atomic<bool> spoiled_{false};   // a call has failed in a way that leaves its answer open

  std::mutex waiting_;  // protects the next member
  std::list<std::weak_ptr<WaitingCall>> waiting_calls_;

  wire::Receiver* receiver_ = nullptr;
  bool repeating_ = false;  // the call being executed has been executed before
  std::uint64_t payload_left_ = 0;
  std::uint32_t lane_ = 0;  // of the call being executed
  Answer answer_;
  std::optional<Wait> wait_;
  bool goodbye_ = false;
  /// By context and lane.
  std::map<std::pair<CUcontext, std::uint32_t>, CUstream> per_thread_streams_;

  std::mutex deferring_;  // protects the next member
  Deferred deferred_;

  struct RefusedMap {
    std::int32_t device;
    std::uint64_t address, size;
  };
  static constexpr std::size_t max_refused_maps = 4096;
  std::vector<RefusedMap> refused_maps_;

  /// Held while a frame is executed, so that drain can tell, and while a conversation begins or ends.
  std::timed_mutex executing_;
  /// Under this epoch the session was written down, and has stood still since; 0: it was not. Protected by
  /// executing_.
  std::uint32_t written_epoch_ = 0;
  bool executed_elsewhere_ = false;  // by another thread than the one that serves; likewise
  std::atomic<MoveObstacle> move_obstacle_{MoveObstacle::none};
  std::mutex serving_;  // protects the next member
  wire::Stream* served_ = nullptr;

  LanePool lanes_;  // the last member: its threads use the others
};

}  // namespace gpupool::worker
