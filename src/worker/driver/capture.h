// What must not be asked of a stream while graphs are captured.
#pragma once

#include <cuda.h>

#include "worker/driver/driver.h"

namespace gpupool::worker {

/// Whether asking how far the stream is, or waiting for it, would end a capture: its own or, of the legacy
/// stream, that of a stream which it waits for. `stream`'s context must be current.
inline bool in_capture(const DriverApi& api, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = api.cuStreamIsCapturing_(stream, &status);
  return result == CUDA_SUCCESS ? status != CU_STREAM_CAPTURE_STATUS_NONE
                                : result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

}  // namespace gpupool::worker
