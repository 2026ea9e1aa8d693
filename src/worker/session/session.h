// What one client process has made on the devices: by its handles, in its contexts.
//
// A session is made new when another process takes it over, and then nothing of the old one can be seen: its
// destructor ends the objects of the driver, and all that the worker knew of them goes with its members.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/device_time/device_work.h"
#include "worker/driver/context_limits.h"
#include "worker/image/move_rules.h"
#include "worker/image/session_journal.h"
#include "worker/objects/array_shares.h"
#include "worker/objects/context_shares.h"
#include "worker/objects/device_resources.h"
#include "worker/objects/graph_table.h"
#include "worker/objects/handle_table.h"
#include "worker/objects/images.h"
#include "worker/objects/linker.h"
#include "worker/objects/objects_in_use.h"
#include "worker/objects/physical_memory.h"
#include "worker/objects/staging.h"
#include "worker/session/equipment.h"

namespace gpupool::worker {

/// The thread that executes calls uses it, and others while no call is executed.
class Session {
 public:
  Session(Equipment& equipment, DeviceWork& work);
  /// Waits for the devices. No call is under way, and what tells of copies and events has let go of them.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const DriverApi& api;
  HandleTable handles;
  ImageTable images;
  LinkTable links;
  ArrayShares arrays;
  ContextLimits limits;
  ContextShares shares;
  DeviceResources resources;
  std::map<std::uint64_t, std::uint64_t> green_contexts;  ///< client's handle -> of the context made of it
  std::map<std::uint64_t, std::shared_ptr<PhysicalMemory>> physical;  ///< by the client's handle
  GraphTable graphs{handles};
  SessionJournal journal;
  ObjectsInUse in_use;

  /// Opens the devices' primary contexts. The arenas begin at `bases`, by device, where the driver agrees and
  /// none is there from an earlier session. Throws std::runtime_error.
  void open(const std::vector<std::uint64_t>& bases);
  /// Whether a client has come.
  [[nodiscard]] bool is_open() const { return !device_of_.empty(); }

  // Contexts.

  CUresult select(CUcontext context);
  [[nodiscard]] CUcontext current() const { return current_; }
  /// The client's handle of the current context; 0 without one.
  [[nodiscard]] std::uint64_t name_of_current() const;
  /// The first device's primary context, which lives as long as the session.
  [[nodiscard]] CUcontext home() const { return home_; }
  /// All contexts of the session.
  [[nodiscard]] std::vector<CUcontext> contexts() const;
  /// Remembers which device a context belongs to.
  void adopt_context(CUcontext context, CUdevice device) { device_of_[context] = device; }
  /// Before a context is destroyed.
  void abandon_context(CUcontext context);
  /// The context made of a green context; null when there is none.
  [[nodiscard]] CUcontext context_of_green(std::uint64_t green) const;
  /// After the context made of a green context was abandoned.
  void forget_green_context(std::uint64_t green);
  /// The primary contexts belong to the session, all others to the client.
  [[nodiscard]] bool is_primary(std::uint64_t context) const;
  /// The device of the current context; the first one without a current context.
  [[nodiscard]] CUdevice device_of_current() const;
  /// The memory account of the current context's device; null without a current context.
  [[nodiscard]] MemoryAccount* account_of_current();
  /// Whether `context` has finished what it was given, as far as is known without waiting.
  [[nodiscard]] bool idle(CUcontext context) { return work_.idle(context); }
  /// The same of all contexts.
  [[nodiscard]] bool idle();
  /// The same of the streams that are known only: work in others is told by DeviceWork::is_complete().
  [[nodiscard]] bool listed_idle();
  /// Waits for everything on a device, whatever context it was given in.
  CUresult synchronize_device(CUdevice device);
  /// Waits for everything on all devices of the session.
  CUresult synchronize_all();

  // Streams and staging memory.

  /// Calls come from this lane of the client from now on: each has a per-thread stream of its own.
  void serves_lane(std::uint32_t lane) { lane_ = lane; }
  [[nodiscard]] std::uint32_t lane() const { return lane_; }
  /// Whether `stream` is being captured: what it is given is no work yet.
  [[nodiscard]] bool captures(CUstream stream);
  Staging& staging();
  /// A stream of `context`, which is current, for copies of the worker's own: the legacy stream waits for the
  /// program's streams, and its use would end what they capture.
  CUresult side_stream(CUcontext context, CUstream& out);

  /// What keeps the session from going to another worker. `thorough`: at the price of a look at each object.
  [[nodiscard]] MoveObstacle obstacle_to_moving(bool thorough);

 private:
  [[nodiscard]] std::int32_t ordinal_of(CUcontext context) const;  // -1: of none of the session's devices
  CUstream per_thread_stream();
  /// Waits for what `context`, which is current, was given, except for what is captured.
  CUresult finish_beside_captures(CUcontext context);
  void end_images();
  void end_arrays();
  void end_graphs();
  void end_streams_and_contexts();

  Equipment& equipment_;
  DeviceWork& work_;
  std::map<CUcontext, CUdevice> device_of_;
  CUcontext current_ = nullptr;
  CUcontext home_ = nullptr;
  std::uint32_t lane_ = 0;
  std::map<std::pair<CUcontext, std::uint32_t>, CUstream> per_thread_streams_;  // by context and lane
  std::map<CUcontext, CUstream> side_streams_;
  std::optional<Staging> staging_;
};

}  // namespace gpupool::worker
