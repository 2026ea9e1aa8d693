// The text that describes a node's devices: printed by `gpupool-worker --probe`, kept by the pool, sent with
// the HELLO reply, read by the client runtime before the first attach.
//
//   driver_version 13000
//   device 0
//   name Software GPU (gpupool)
//   uuid <32 hex digits>
//   software 1
//   total_mib 8192
//   pci 0000:00:00.0
//   stream_priorities 0 -5
//   attribute 75 12
//   end
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpupool {

struct DeviceDescription {
  int ordinal = 0;
  std::string name;
  std::string uuid;  ///< 32 lower-case hex digits
  bool software = false;
  std::uint64_t total_mib = 0;
  std::string pci;                ///< domain:bus:device.function
  std::map<int, int> attributes;  ///< CUdevice_attribute -> value, those that the driver answers
  /// Least and greatest priority of streams; a driver tells them only where there is a context.
  std::optional<std::pair<int, int>> stream_priorities = {};
};

struct DeviceProfile {
  int driver_version = 0;  ///< 1000 * major + 10 * minor, as cuDriverGetVersion says it
  std::vector<DeviceDescription> devices;
};

[[nodiscard]] std::string format_profile(const DeviceProfile& profile);

/// Reads the text; keys that it does not know are skipped, so that a newer node can say more.
/// Throws std::runtime_error naming the line when a known key has a bad value or a block is not closed,
/// or when there are more than 64 devices or more than 1 MiB of text.
[[nodiscard]] DeviceProfile parse_profile(std::string_view text);

}  // namespace gpupool
