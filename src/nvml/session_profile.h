// What the session file and the device profile say about this process's share, before any CUDA call was made.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "profile/device_profile.h"

namespace gpupool::nvml {

struct SessionFacts {
  std::string profile_path;  ///< empty: none
  std::map<unsigned, std::uint64_t>
      share_mib;  ///< by ordinal, from `share 0:200:1638,1:...`; empty: not said
};

/// Reads the text of a session file; unknown keys and unreadable values are skipped, for NVML must never be
/// the part that breaks a program.
[[nodiscard]] SessionFacts parse_session(std::string_view text);

/// The devices of the session named by GPUPOOL_SESSION_FILE, with total_mib cut down to the share where it is
/// known. Nothing when the variable is not set; no devices when there is no profile (yet).
[[nodiscard]] std::optional<DeviceProfile> read_session_profile();

}  // namespace gpupool::nvml
