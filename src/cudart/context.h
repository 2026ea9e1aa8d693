// Which driver context a thread's calls go to: the one it made current itself, else the primary context of
// its device.
#pragma once

#include <atomic>

#include "cudart/driver.h"
#include "cudart/thread_state.h"

namespace gpupool::cudart {

cudaError_t enter_first();

/// Before a call that needs a context. Costs one thread-local test when the thread has one.
inline cudaError_t enter() {
  return thread_state.ready ? cudaSuccess : enter_first();
}

/// Whether `result` says that the thread's context has gone, e.g. popped through the driver API, or reset.
inline bool lost_context(CUresult result) {
  return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/// Gives the thread a context again. False when that is not the cure; then `result` stands.
bool regain_context(CUresult result);

/// Makes the primary context of `device` current in this thread.
cudaError_t select_device(int device);

/// The device of the thread's current context.
cudaError_t current_device(CUdevice& device);

/// The retained primary context of `device`.
cudaError_t primary_context(int device, CUcontext& context);

/// Destroys the primary context of the thread's device with all that is in it.
cudaError_t reset_device();

/// How many resets of a device there have been, whichever thread's. Its error ends with one for all threads.
std::atomic<unsigned>& resets_of(int device);

/// Whether the process is on its way out; then nothing is unloaded, the driver does that.
bool process_ends();

}  // namespace gpupool::cudart
