// What the worker's shell (process, sockets, lease) gives to the session executor, and what it asks of it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wire/transport/stream.h"
#include "worker/lease/lease_gate.h"
#include "worker/lease/memory_account.h"
#include "worker/lease/usage.h"
#include "worker/lease/work_under_way.h"

namespace gpupool::worker {

/// One device of the start record. Position in the list = ordinal that the client sees.
struct DeviceShare {
  int driver_ordinal = 0;     ///< CUdevice ordinal in the worker's driver
  std::string uuid;           ///< 32 lower-case hex digits
  std::uint32_t milli = 0;    ///< compute share at the start, 1..1000
  std::uint64_t mib = 0;      ///< memory share at the start
  std::string enforcer = {};  ///< the device's book of turns; empty: device time is not enforced
  bool strict = false;        ///< the compute share is a hard cap
};

/// Whether this process is a client of NVIDIA's Multi-Process Service, and for what.
enum class Mps : std::uint8_t {
  none,
  beside,    ///< its work runs beside that of other clients; its share is kept to by turns
  partition  ///< its share is the part of the multiprocessors that MPS gives it, from its start on
};

/// How a compute share is kept to: not at all, by turns (soft), by turns and a cap (hard), by a part of the
/// multiprocessors (mps).
enum class Enforcement : std::uint8_t { none, soft, hard, mps };

/// Where the session's device memory lies, and what stands in the way of moving it, known beforehand. The
/// ids are those of the `stats` line; empty: nothing does.
struct MemoryReport {
  bool in_host = false;
  std::string park_obstacle = {};
  std::string move_obstacle = {};
};

/// The device that the client knows as `ordinal` becomes another one.
struct DeviceChange {
  std::uint32_t ordinal = 0;
  std::string uuid;  ///< 32 lower-case hex digits
};

/// A smaller share that the client is asked to make do with.
struct ShareWish {
  std::uint32_t ordinal = 0;
  std::uint64_t bytes = 0;
};

/// What became of moving the memory.
struct MoveResult {
  std::string refusal = {};  ///< empty: done; else what follows `reason=` in the answer
  std::uint64_t bytes = 0;   ///< that lie in the host now
  std::uint64_t chunks = 0;  ///< of an image
  bool lost = false;         ///< the memory is gone: the session has to end
};

/// Shared by the executor, the control thread and the acceptor; lives as long as the process.
struct WorkerState {
  std::array<std::uint8_t, 16> session_id{};
  std::array<std::uint8_t, 32> token{};          ///< never logged
  std::vector<DeviceShare> devices;              ///< the uuid changes with a resume onto another device
  std::deque<MemoryAccount> memory;              ///< one per device, same order; the limit follows the lease
  std::deque<std::atomic<std::uint32_t>> milli;  ///< one per device, same order: the compute share in force
  /// Whom the session belongs to: workers of one user give each other what their clients share. None:
  /// unknown.
  std::optional<std::array<std::uint8_t, 32>> user;
  std::string image_cache;            ///< folder of this user's module images on the node; empty: none
  std::uint64_t image_cache_mib = 0;  ///< how large it may become
  Mps mps = Mps::none;
  std::string resume_folder;  ///< the session image to begin with; empty: none
  std::string resume_from;    ///< address of the worker to fetch it from; empty: none
  std::atomic<Enforcement> enforcement{Enforcement::none};
  LeaseGate gate;
  Usage usage;
  WorkUnderWay work;
};

/// How a connection ended. After `goodbye` the client will not come back, so nobody waits for it.
enum class ServeEnd { goodbye, broken };

/// The executor of one session against a driver. Implemented in session*.cpp.
class SessionExecutor {
 public:
  virtual ~SessionExecutor() = default;

  /// Serves one authenticated client until the connection ends. `stream` is positioned right after the HELLO
  /// frame, whose reply the executor sends. `hello` is the HELLO frame (header and body) as received. One
  /// call at a time; a later call resumes the same session.
  virtual ServeEnd serve(wire::Stream& stream, std::span<const std::byte> hello) = 0;

  // The next are called from the control thread while `serve` runs, and do not wait for the devices.

  /// Whether everything that was received is executed and complete on the devices.
  [[nodiscard]] virtual bool drained() = 0;
  /// Whether the devices work for the session.
  [[nodiscard]] virtual bool computes() { return false; }
  /// The lease is over: what computes stops where it is, and calls that wait for it are refused as without a
  /// lease. False: this driver cannot stop it.
  virtual bool stop_work() { return false; }
  /// There is a lease: what was stopped goes on.
  virtual void go_on() {}

  /// The client has been away for longer than it may: nothing waits for it any more. From the control thread.
  virtual void client_is_gone() {}

  /// Lets the executor charge device time that has become known. Called about once a second from the control
  /// thread.
  virtual void tick() = 0;

  /// Looks what the devices do for the session, and tells it in the state. From the control thread.
  virtual void look_at_work() {}

  /// Any thread, any time, without waiting.
  [[nodiscard]] virtual MemoryReport memory_report() const { return {false, "other", "other"}; }

  // The next may take seconds. One at a time, from one thread that is neither the control thread nor
  // serves; without a lease in force.

  /// Moves the device memory to the host, after at most `drain_ms` of waiting for work. Idempotent.
  virtual MoveResult park(int drain_ms) {
    static_cast<void>(drain_ms);
    return {"other"};
  }
  /// Moves it back, onto the devices named. Idempotent. On a failure it stays in the host.
  virtual MoveResult resume(const std::vector<DeviceChange>& devices) {
    return {devices.empty() ? "" : "resident"};
  }
  /// Gives the session to another worker, which has sent a valid Control::session on `stream` and nothing yet
  /// behind it. On a thread of its own.
  virtual void hand_over(wire::Stream& stream) { stream.shut_down(); }
  /// Asks the client to make do with smaller shares, to give back what it only keeps for later, and waits at
  /// most `wait_ms` for its answer. What comes of it, the memory accounts say; shares_decided() must follow.
  /// On the same thread.
  virtual void make_do(const std::vector<ShareWish>& wishes, int wait_ms) {
    static_cast<void>(wishes);
    static_cast<void>(wait_ms);
  }
  /// The shares may have another size: the client is told soon. From the control thread.
  virtual void shares_decided() {}
  /// Writes the session's image.
  virtual MoveResult export_image(const std::string& folder) {
    static_cast<void>(folder);
    return {"other"};
  }
};

/// Opens the driver and its devices. Throws std::runtime_error with one clear sentence.
std::unique_ptr<SessionExecutor> open_session(const std::string& driver_path, WorkerState& state);

}  // namespace gpupool::worker
