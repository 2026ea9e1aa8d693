// Copies from one device to another.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "worker/conversation/call.h"

namespace gpupool::worker {

/// Contexts in which the driver reaches the memory at the two ends of a copy.
struct DevicesApart {
  CUcontext to, from;
};

/// Memory of a session can be reached by its own device alone: nothing where that is the current context's,
/// at both ends, or where the memory is not the session's.
inline std::optional<DevicesApart> devices_apart(const Call& x, std::uint64_t to, std::uint64_t from) {
  if (x.equipment.devices.size() < 2) return std::nullopt;
  const std::int32_t into = x.equipment.ordinal_at(to), out_of = x.equipment.ordinal_at(from),
                     here = x.ordinal(x.session.device_of_current());
  if (into < 0 || out_of < 0 || (into == here && out_of == here)) return std::nullopt;
  return DevicesApart{x.primary(into), x.primary(out_of)};
}

}  // namespace gpupool::worker
