// What the driver says of errors beyond their number (cuLogsRegisterCallback): the software GPU tells of a
// kernel's fault which line, which thread and which memory it was.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>

#include "worker/driver/driver.h"

namespace gpupool::worker {

/// Collects lines from any thread of the driver. Without a word where the driver has no such log.
class DriverLog {
 public:
  static constexpr std::size_t most_lines = 100;  ///< the newest are kept

  /// Only what add() is told.
  DriverLog() = default;
  explicit DriverLog(const Driver& driver);
  ~DriverLog();
  DriverLog(const DriverLog&) = delete;
  DriverLog& operator=(const DriverLog&) = delete;

  void add(std::string_view line);
  /// The lines since the last call, each with its end. Cheap when there are none.
  std::string take();

 private:
  std::mutex mutex_;
  std::deque<std::string> lines_;
  CUlogsCallbackHandle handle_ = nullptr;
  decltype(&cuLogsUnregisterCallback) unregister_ = nullptr;
};

}  // namespace gpupool::worker
