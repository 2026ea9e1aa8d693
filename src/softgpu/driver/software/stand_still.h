// Exports beside CUDA's: workers look for them, to tell what a session's device does, and to stop the work of
// a session whose lease has ended or whose turn on the device is over.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softgpu/driver/base/cuda_api.h"

extern "C" {

/// With `on` not 0, returns when no instruction of this process's kernels is executed any more: a piece of
/// some milliseconds is finished first. Copies and fills that have begun end; none begins. Time measured by
/// events stands still, too. With 0 everything goes on. Idempotent; from any thread. CUDA_SUCCESS, or
/// CUDA_ERROR_OPERATING_SYSTEM and nothing has changed.
__attribute__((visibility("default"))) int gpupool_softgpu_stand_still(int on);

/// The kernel that has run for the longest of those that run: its name as in the image, cut to `size` bytes
/// with its NUL, and for how many nanoseconds of device time. 0: none runs, and nothing was written.
__attribute__((visibility("default"))) int gpupool_softgpu_running(char* name, std::size_t size,
                                                                   std::int64_t* nanoseconds);

/// The clock by which events are timed, from anywhere: it does not advance while everything stands still.
__attribute__((visibility("default"))) std::int64_t gpupool_softgpu_device_ns();

/// The time of an event by that clock: when the device came to it. CUDA_SUCCESS; CUDA_ERROR_NOT_READY, also
/// when it was never recorded; CUDA_ERROR_INVALID_HANDLE; CUDA_ERROR_INVALID_VALUE.
__attribute__((visibility("default"))) int gpupool_softgpu_event_ns(CUevent event, std::int64_t* nanoseconds);
}
