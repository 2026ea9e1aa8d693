// What the worker's parts share: what was said to it at its start, and how things stand.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

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
  std::string refusal = {};   ///< empty: done; else what follows `reason=` in the answer
  std::uint64_t bytes = 0;    ///< that lie in the host now
  std::uint64_t chunks = 0;   ///< of an image
  bool lost = false;          ///< the memory is gone: the session has to end
  bool brought_back = false;  ///< memory came from the host for nothing: without a lease it has to go again
};

/// Shared by the session, the control thread and the acceptor; lives as long as the process.
struct WorkerState {
  std::array<std::uint8_t, 16> session_id{};
  /// What the client shows, and what another worker does that takes the session over; none: none may come.
  /// Neither is ever logged.
  std::array<std::uint8_t, 32> token{};
  std::optional<std::array<std::uint8_t, 32>> move_key;
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

}  // namespace gpupool::worker
