// The part of the driver that measures time on a device.
#pragma once

#include <cstdint>

namespace gpupool::worker {

/// The driver functions that measuring needs; opaque pointers as in cuda.h, results are CUresult (0 success,
/// 600 not ready).
struct EventFunctions {
  int (*context_push)(void* context) = nullptr;                     // cuCtxPushCurrent_v2
  int (*context_pop)(void** context) = nullptr;                     // cuCtxPopCurrent_v2
  int (*stream_is_capturing)(void* stream, int* status) = nullptr;  // cuStreamIsCapturing; may be null
  int (*exchange_capture_mode)(int* mode) = nullptr;  // cuThreadExchangeStreamCaptureMode; may be null
  int (*event_create)(void** event, unsigned flags) = nullptr;        // cuEventCreate
  int (*event_destroy)(void* event) = nullptr;                        // cuEventDestroy_v2
  int (*event_record)(void* event, void* stream) = nullptr;           // cuEventRecord
  int (*event_query)(void* event) = nullptr;                          // cuEventQuery
  int (*event_elapsed)(float* ms, void* start, void* end) = nullptr;  // cuEventElapsedTime(_v2)
  int (*event_ns)(void* event,
                  std::int64_t* ns) = nullptr;  // gpupool_softgpu_event_ns; the software GPU's, else null

  /// Looks the functions up in a driver opened by dlopen. All but those that may be null must be there.
  static bool load(void* library, EventFunctions& out);
};

}  // namespace gpupool::worker
