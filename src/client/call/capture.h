// What other families need to know about stream capture.
#pragma once

#include <cuda.h>

#include <atomic>

namespace gpupool::client {

/// Captures begun and not ended. While there are none, no stream can be capturing, and nobody has to ask.
inline std::atomic<int> open_captures{0};

/// Whether a stream of this process may be capturing. Then nothing that is known here about streams and
/// events counts: the driver has errors of its own for waiting for them.
[[nodiscard]] inline bool captures_are_open() {
  return open_captures.load() != 0;
}

/// Costs nothing while no capture is open, else a round trip.
CUresult is_capturing(CUstream stream, bool& out);

/// The stream is gone, and with it the capture that was begun in it.
void forget_capture(CUstream stream);

}  // namespace gpupool::client
