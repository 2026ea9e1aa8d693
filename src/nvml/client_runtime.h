// The client runtime's libcuda.so.1, when it is loaded in this process. NVML never loads it: a monitoring
// tool must not become a CUDA process by asking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/device_profile.h"

namespace gpupool::nvml {

/// What the counters of the client runtime say about the worker.
struct WorkerFigures {
  double device_seconds = 0;
  std::vector<std::uint64_t> memory_used;  ///< bytes by ordinal
};

/// Reads the JSON of gpupool_counters; nothing when it has no worker object.
[[nodiscard]] std::optional<WorkerFigures> parse_counters(std::string_view json);

/// Asks the loaded runtime; nothing when there is none, or no worker behind it.
[[nodiscard]] std::optional<WorkerFigures> worker_figures();

/// The devices as the loaded and initialised runtime shows them; nothing when the program has not called
/// cuInit.
[[nodiscard]] std::optional<DeviceProfile> runtime_profile();

}  // namespace gpupool::nvml
