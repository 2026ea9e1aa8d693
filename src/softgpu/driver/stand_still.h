// An export beside CUDA's: workers look for it to stop the work of a session whose lease has ended, or whose
// turn on the device is over.
#pragma once

#include "softgpu/driver/cuda_api.h"

extern "C" {

/// With `on` not 0, returns when no instruction of this process's kernels is executed any more: a piece of
/// some milliseconds is finished first. Copies and fills that have begun end; none begins. Time measured by
/// events stands still, too. With 0 everything goes on. Idempotent; from any thread. CUDA_SUCCESS, or
/// CUDA_ERROR_OPERATING_SYSTEM and nothing has changed.
__attribute__((visibility("default"))) int gpupool_softgpu_stand_still(int on);
}
