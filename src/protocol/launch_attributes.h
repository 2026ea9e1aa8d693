// Which launch attributes travel, and how.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace gpupool {

enum class LaunchAttribute {
  plain,    ///< the 64 value bytes mean the same at both ends
  event,    ///< the value starts with an event handle
  refused,  ///< holds what the other end cannot interpret
};

inline constexpr std::size_t max_launch_attributes = 64;

/// Whether CUDA has an attribute of this number at all.
[[nodiscard]] constexpr bool is_launch_attribute(int id) {
  return id >= CU_LAUNCH_ATTRIBUTE_IGNORE && id <= CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE;
}

[[nodiscard]] constexpr LaunchAttribute launch_attribute_class(int id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:  // its address is one of the shared arena
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return LaunchAttribute::plain;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return LaunchAttribute::event;
    default:
      return LaunchAttribute::refused;
  }
}

}  // namespace gpupool
