// The process's one session: what is initialised, attached, connected. It has one worker, or one on each of
// several nodes.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/lease/session_state.h"
#include "client/link/door.h"
#include "client/process/counters.h"
#include "client/process/interrupt_words.h"
#include "client/session/lease_wait.h"
#include "client/session/worker_link.h"
#include "profile/device_profile.h"

namespace gpupool::client {

class Runtime {
 public:
  Runtime();

  /// cuInit. Succeeds whenever GPUPOOL_SESSION_FILE is set.
  CUresult initialise();
  [[nodiscard]] bool initialised() const { return initialised_.load(std::memory_order_acquire) && !forked(); }
  [[nodiscard]] static bool forked() { return forked_.load(std::memory_order_relaxed); }

  /// Before a call that needs the worker. Fast when the lease holds.
  CUresult enter() {
    if (ready_.load(std::memory_order_acquire)) return CUDA_SUCCESS;
    return attach_for_call();
  }
  /// Whether enter() would succeed at once.
  [[nodiscard]] bool ready() const { return ready_.load(std::memory_order_acquire); }
  /// Before a call that needs the worker but no lease: a connection is enough.
  CUresult enter_without_lease();

  /// Reads the session file and connects or takes the lease. `may_begin`: also where another session begins
  /// by it, so that nothing may be held that is of the old one, and no lock (session_belongings.h).
  CUresult attach(bool may_begin = false);
  /// At the beginning of a call, before it looks at what it was given: where the session is over and the
  /// session file names another one, that one begins.
  void begin_if_over() {
    if (over_.load(std::memory_order_relaxed)) [[unlikely]]
      begin_next();
  }
  /// The sessions that this process has begun; 0: none yet.
  [[nodiscard]] std::uint32_t session_generation() const {
    return session_generation_.load(std::memory_order_acquire);
  }
  void detach();
  /// The session file was replaced: a lease that it does not name any more is over.
  void notice_session_file();
  /// Waits until the devices have executed everything. `drained`: of each worker that has, told what came
  /// before which frame is complete.
  using Drained = void (*)(const WorkerLink& worker, std::uint64_t place);
  CUresult drain(int timeout_ms, Drained drained);
  /// What the session's workers say of their devices, asked for at their doors.
  [[nodiscard]] Inquiries inquire();
  [[nodiscard]] std::string inquiry_json();
  /// Ends the session: what is in GPU memory is lost, every call that waits returns with an error. Any
  /// thread.
  CUresult end_session();
  std::string counters_json(bool reset_peak);

  /// The session's workers. How many there are is known and final once enter() has succeeded.
  [[nodiscard]] unsigned workers() const { return workers_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool several() const { return workers() > 1; }
  [[nodiscard]] WorkerLink& worker(unsigned number = 0) { return links_[number]; }
  [[nodiscard]] bool connected() const {
    return links_[0].connection.load(std::memory_order_acquire) != nullptr;
  }

  /// A connection broke: CUDA_ERROR_DEVICE_UNAVAILABLE, and so for every later call of the session.
  CUresult lost();
  /// A worker said what makes no sense: its connection is over.
  CUresult lost(WorkerLink& link);
  /// A worker refused a call made under `epoch`: the session is parked as a whole.
  void refused(const WorkerLink& worker, std::uint32_t epoch);

  /// The devices as a program sees them: the session's, before the first attach those of the profile.
  [[nodiscard]] std::shared_ptr<const DeviceProfile> devices();

  Counters counters;

  /// Something was given to the device.
  void gave_work() { work_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t work_mark() const { return work_.load(std::memory_order_relaxed); }

  static void register_fork_handler();

 private:
  /// attach(), and before it a wish for a lease, if the program has its calls wish (attach_again.h).
  CUresult attach_for_call();
  [[nodiscard]] bool wants_lease();
  /// Waits while the session file says that the holder has asked for another lease (lease_wait.h).
  LeaseWait await_lease();
  /// What the session file says of a wish.
  enum class Wished { waits, granted, refused };
  [[nodiscard]] Wished answer_to(unsigned long wish);
  /// Waits for the answer to a wish; `none`: it was refused, or nobody hears it.
  LeaseWait wish_for_lease();
  [[nodiscard]] SessionState::Prospect prospect();
  /// Has everything that was sent executed, before the lease ends that it was sent under; tells the holder.
  void settle(std::uint64_t generation);
  std::optional<SessionFile> read_file(std::string& error) REQUIRES(mutex_);
  [[nodiscard]] std::vector<Door> doors();
  /// From now on an interrupt of the main thread's waits says what runs, and a second one ends the session.
  void notice_interrupts();
  // These speak with the workers: attaching_ is held, mutex_ is not. `detaches` is the number of detaches
  // before the file was read.
  CUresult attach_now(bool may_begin);
  CUresult connect(const SessionFile& file, std::uint64_t detaches);
  void begin_next();
  /// Between two sessions: from here on nothing is left of the old one.
  void forget_session();
  CUresult lease(const SessionFile& file, std::uint64_t detaches);
  /// One worker that was reached, before the session is connected as a whole.
  struct Reached {
    std::unique_ptr<Connection> connection;
    wire::HelloBody hello{};
    wire::HelloReply answer;
    std::shared_ptr<const DeviceProfile> profile;
  };
  bool reach(const SessionFile& file, unsigned number, Reached& out, std::string& error);
  bool open_memory(const std::vector<Reached>& all, std::string& error);
  /// Where device `index` of all that this process has had, and those of the same worker behind it, should
  /// lie.
  std::uint64_t arena_of(unsigned index, unsigned devices);
  /// From now on the connection is made anew when it breaks, wherever the session file says that the worker
  /// is. `file`: of that worker (SessionFile::of_worker).
  void survive(WorkerLink& link, Connection& connection, const wire::HelloBody& hello,
               const SessionFile& file, const wire::HelloReply& worker);
  /// The worker that the file names is connected; false when that takes too long.
  bool connected_to(WorkerLink& link, const SessionFile& file);
  /// Whether a connection is lost for good.
  [[nodiscard]] bool any_broken();
  /// Waits for one worker's work; nothing when it is lost.
  std::optional<CUresult> drain(WorkerLink& link, int limit, Drained drained);
  /// The lease is taken: calls may go on, unless it was given back meanwhile.
  CUresult leased(const SessionFile& file, std::uint64_t detaches) REQUIRES(mutex_);
  void take_epochs(const SessionFile& file) REQUIRES(mutex_);
  void gather_devices() REQUIRES(mutex_);
  CUresult unavailable(const SessionState::Step& step);
  [[nodiscard]] const char* state_name() REQUIRES(mutex_);

  static std::atomic<bool> forked_;
  std::atomic<bool> initialised_{false};
  std::atomic<std::uint64_t> work_{1};
  std::atomic<bool> ready_{false};
  std::atomic<bool> over_{false};  ///< the session can only be followed by another one
  std::atomic<std::uint32_t> session_generation_{0};
  unsigned devices_begun_ = 0;                ///< of all sessions; by the thread that connects
  std::map<unsigned, std::uint64_t> arenas_;  ///< what arena_of() has answered; by the same
  std::atomic<unsigned> workers_{1};
  std::array<WorkerLink, SessionFile::max_workers> links_;
  Mutex attaching_;  // held by the one thread that connects or takes a lease; taken before mutex_
  Mutex mutex_;      // never held while waiting for the worker
  std::uint64_t detaches_ GUARDED_BY(mutex_) = 0;
  /// The session file whose lease the worker refuses, and since when that is known.
  std::uint64_t refused_generation_ GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point refused_since_ GUARDED_BY(mutex_){};
  /// For which file a question to a device found no worker, and when.
  std::optional<std::uint64_t> vain_generation_ GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point vain_since_ GUARDED_BY(mutex_){};
  SessionState session_ GUARDED_BY(mutex_);
  std::shared_ptr<const DeviceProfile> devices_ GUARDED_BY(mutex_);
  bool devices_final_ GUARDED_BY(mutex_) = false;
  bool software_ GUARDED_BY(mutex_) = false;
};

/// A control message that has an answer, within a time.
Connection::Outcome ask_within(const WorkerLink& link, wire::Control message, std::uint32_t epoch,
                               Reply& reply, int timeout_ms, const wire::Buffer& body = {});

/// One per process, never destroyed: calls may come from other libraries' destructors.
Runtime& runtime();

}  // namespace gpupool::client
