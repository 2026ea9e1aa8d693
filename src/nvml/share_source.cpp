// NVML's facts of a share of a pool: those of the session, from the client runtime when this process has
// loaded it, else from what the holder of the share wrote.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "nvml/client_runtime.h"
#include "nvml/device_source.h"
#include "nvml/session_profile.h"
#include "nvml/session_usage.h"

namespace gpupool::nvml::source {
namespace {

/// The worker's device time between two looks at it.
class WorkerTime {
 public:
  static WorkerTime& instance() {
    static auto* const made = new WorkerTime;
    return *made;
  }

  /// Nothing: there is no look that is young enough to compare with.
  std::optional<unsigned> percent(const WorkerFigures& figures) {
    const MutexLock lock(mutex_);
    const Sample now{std::chrono::steady_clock::now(), figures.device_seconds};
    const double seconds = last_ ? std::chrono::duration<double>(now.at - last_->at).count() : 0;
    if (!last_ || seconds > longest_seconds) {
      last_ = now;
      last_percent_.reset();
      return std::nullopt;
    }
    if (seconds < shortest_seconds) return last_percent_;  // several tools in a row see the same figure
    // The worker tells the time of all devices together.
    const auto devices = static_cast<double>(std::max<std::size_t>(figures.memory_used.size(), 1));
    const double share = (now.device_seconds - last_->device_seconds) / seconds / devices;
    last_percent_ = static_cast<unsigned>(std::lround(100 * std::clamp(share, 0.0, 1.0)));
    last_ = now;
    return last_percent_;
  }

  static constexpr double shortest_seconds = 0.1, longest_seconds = 5;

 private:
  struct Sample {
    std::chrono::steady_clock::time_point at;
    double device_seconds;
  };
  Mutex mutex_;
  std::optional<Sample> last_ GUARDED_BY(mutex_);
  std::optional<unsigned> last_percent_ GUARDED_BY(mutex_);
};

}  // namespace

const char* const not_supported_text = "The requested operation is not available on a share of a pooled GPU";
const char* const no_driver_text = "No GPU session: this process was not started by gpupool";

bool present() {
  const char* const session = std::getenv("GPUPOOL_SESSION_FILE");
  return session != nullptr && *session != '\0';
}

std::optional<DeviceProfile> devices() {
  if (auto live = runtime_profile()) return live;
  return read_session_profile();
}

std::uint64_t used_memory(unsigned index) {
  if (const auto live = worker_figures()) {
    return index < live->memory_used.size() ? live->memory_used[index] : 0;
  }
  const auto written = read_session_usage();
  return written && index < written->memory_used.size() ? written->memory_used[index] : 0;
}

/// The same for all devices: since the last call when the client runtime is in this process, else in the last
/// seconds before the last report to the holder of the share.
std::optional<unsigned> utilisation(unsigned) {
  if (const auto first = worker_figures()) {
    if (const auto percent = WorkerTime::instance().percent(*first)) return percent;
    std::this_thread::sleep_for(std::chrono::duration<double>(1.1 * WorkerTime::shortest_seconds));
    const auto second = worker_figures();
    return second ? WorkerTime::instance().percent(*second) : std::nullopt;
  }
  const auto written = read_session_usage();
  if (!written) return std::nullopt;
  return static_cast<unsigned>(std::lround(100 * written->busy));
}

/// The one process of the session, once it holds memory: this one, or the one that says so beside the session
/// file. Others of the same user have sessions of their own.
std::vector<ProcessUse> processes(unsigned index) {
  const std::uint64_t used = used_memory(index);
  if (used == 0) return {};
  const unsigned pid = worker_figures() ? static_cast<unsigned>(::getpid()) : session_process().value_or(0);
  if (pid == 0) return {};
  return {{pid, used, utilisation(index)}};
}

}  // namespace gpupool::nvml::source
