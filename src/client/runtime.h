// The process's one session: what is initialised, attached, connected.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "client/connection.h"
#include "client/counters.h"
#include "client/device_memory.h"
#include "client/session_state.h"
#include "profile/device_profile.h"

namespace gpupool::client {

class Runtime {
 public:
  /// cuInit. Succeeds whenever GPUPOOL_SESSION_FILE is set.
  CUresult initialise();
  [[nodiscard]] bool initialised() const { return initialised_.load(std::memory_order_acquire) && !forked(); }
  [[nodiscard]] static bool forked() { return forked_.load(std::memory_order_relaxed); }

  /// Before a call that needs the worker. Fast when the lease holds.
  CUresult enter() {
    if (ready_.load(std::memory_order_acquire)) return CUDA_SUCCESS;
    return attach_for_call();
  }
  /// Before a call that needs the worker but no lease: a connection is enough.
  CUresult enter_without_lease();

  /// Reads the session file and connects or takes the lease.
  CUresult attach();
  void detach();
  /// The session file was replaced: a lease that it does not name any more is over.
  void notice_session_file();
  CUresult drain(int timeout_ms);
  std::string counters_json(bool reset_peak);

  /// Valid after enter() succeeded; never freed.
  [[nodiscard]] Connection& connection() { return *connection_.load(std::memory_order_acquire); }
  [[nodiscard]] bool connected() const { return connection_.load(std::memory_order_acquire) != nullptr; }
  [[nodiscard]] std::uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  /// The connection broke: CUDA_ERROR_DEVICE_UNAVAILABLE, and so for every later call.
  CUresult lost();
  /// The worker refused a call made under `epoch`.
  void refused(std::uint32_t epoch);

  /// The devices as a program sees them: the session's, before the first attach those of the profile.
  [[nodiscard]] std::shared_ptr<const DeviceProfile> devices();

  DeviceMemory memory;
  Counters counters;

  static void register_fork_handler();

 private:
  /// attach(), and before it whatever the program does for a GPU (attach_again.h).
  CUresult attach_for_call();
  [[nodiscard]] bool wants_lease();
  std::optional<SessionFile> read_file(std::string& error);
  // These two speak with the worker: attaching_ is held, mutex_ is not. `detaches` is the number of detaches
  // before the file was read.
  CUresult connect(const SessionFile& file, std::uint64_t detaches);
  CUresult lease(const SessionFile& file, std::uint64_t detaches);
  /// From now on the connection is made anew when it breaks, wherever the session file says that the worker
  /// is.
  void survive(Connection& connection, const wire::HelloBody& hello, const SessionFile& file,
               const wire::HelloReply& worker);
  /// The worker that the file names is connected; false when that takes too long.
  bool connected_to(const SessionFile& file);
  /// The lease is taken: calls may go on, unless it was given back meanwhile. Precondition: mutex_ held.
  CUresult leased(const SessionFile& file, std::uint64_t detaches);
  CUresult unavailable(const SessionState::Step& step);
  [[nodiscard]] const char* state_name();

  static std::atomic<bool> forked_;
  std::atomic<bool> initialised_{false};
  std::atomic<bool> ready_{false};
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<Connection*> connection_{nullptr};
  std::mutex attaching_;  // held by the one thread that connects or takes a lease; taken before mutex_
  std::mutex mutex_;      // protects the rest; never held while waiting for the worker
  std::uint64_t detaches_ = 0;
  SessionState session_;
  std::shared_ptr<const DeviceProfile> devices_;
  bool devices_final_ = false;
  bool software_ = false;
  std::string address_;  // of the worker that is connected, or was last
};

/// One per process, never destroyed: calls may come from other libraries' destructors.
Runtime& runtime();

}  // namespace gpupool::client
