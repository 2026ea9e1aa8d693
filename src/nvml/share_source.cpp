// NVML's facts of a share of a pool: those of the session, from the client runtime when this process has
// loaded it, else from what the holder of the share wrote.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

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

  unsigned percent(double device_seconds) {
    const MutexLock lock(mutex_);
    const Sample now{std::chrono::steady_clock::now(), device_seconds};
    if (!last_) {
      last_ = now;
      return last_percent_;
    }
    const double seconds = std::chrono::duration<double>(now.at - last_->at).count();
    if (seconds < 0.1) return last_percent_;  // several tools asking in a row shall see the same figure
    const double share = (now.device_seconds - last_->device_seconds) / seconds;
    last_percent_ = static_cast<unsigned>(std::lround(100 * std::clamp(share, 0.0, 1.0)));
    last_ = now;
    return last_percent_;
  }

 private:
  struct Sample {
    std::chrono::steady_clock::time_point at;
    double device_seconds;
  };
  Mutex mutex_;
  std::optional<Sample> last_ GUARDED_BY(mutex_);
  unsigned last_percent_ GUARDED_BY(mutex_) = 0;
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

/// The same for all devices: since the last call when the client runtime is in this process, else between the
/// last two reports to the holder of the share.
std::optional<unsigned> utilisation(unsigned) {
  if (const auto figures = worker_figures()) return WorkerTime::instance().percent(figures->device_seconds);
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
