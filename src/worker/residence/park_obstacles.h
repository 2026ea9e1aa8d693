// What keeps a session's memory on its devices, known before anybody tries to move it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <set>
#include <string>

namespace gpupool::worker {

/// The executing thread tells what begins and ends; any thread may ask.
///
/// - `old-driver`: no process checkpoint (before 570, or not on this platform); until a newer driver.
///
/// - `ipc`: memory, pools or events given to or taken from a process, until they are freed; an event of
///   another process, until the session ends.
///
/// - `managed`: managed memory of the driver's own (`__managed__`), until its module is unloaded.
///
/// - `capture`: a stream is being captured, until the capture ends.
class ParkObstacles {
 public:
  void capture_began(CUstream stream) {
    captures_.insert(stream);
    capturing_ = captures_.size();
  }
  void capture_ended(CUstream stream) {
    captures_.erase(stream);
    capturing_ = captures_.size();
  }
  void event_opened() { opened_events_ = true; }
  void managed_loaded() { ++managed_; }
  void managed_unloaded() { --managed_; }
  void clear() {
    captures_.clear();
    capturing_ = 0;
    opened_events_ = false;
    managed_ = 0;
  }

  /// `shared`: memory, pools or events that the session shares now. Empty: nothing stands in the way.
  [[nodiscard]] std::string first(bool driver_can, bool shared) const {
    if (!driver_can) return "old-driver";
    if (shared || opened_events_) return "ipc";
    if (managed_ > 0) return "managed";
    if (capturing_ > 0) return "capture";
    return {};
  }

 private:
  std::set<CUstream> captures_;
  std::atomic<std::size_t> capturing_{0};
  std::atomic<bool> opened_events_{false};
  std::atomic<int> managed_{0};
};

}  // namespace gpupool::worker
