#include "cudart/error.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <set>
#include <string>

#include "base/mutex.h"
#include "cudart/call.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

// Of any thread: what one launches another may wait for.
constinit std::atomic<bool> cleared_launch{false};

}  // namespace

const ErrorName* find_error(int value) {
  const ErrorName* const end = error_names + error_name_count;
  const ErrorName* const found =
      std::lower_bound(error_names, end, value, [](const ErrorName& e, int v) { return e.value < v; });
  return found != end && found->value == value ? found : nullptr;
}

cudaError_t translate_failure(CUresult result) {
  const int value = static_cast<int>(result);
  // A few results are the driver's alone.
  return find_error(value) != nullptr ? static_cast<cudaError_t>(value) : cudaErrorUnknown;
}

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

cudaError_t refuse(const char* function, const char* reason) {
  static Mutex mutex;
  static auto* const said = new std::set<std::string>;
  const MutexLock lock(mutex);
  if (said->insert(function).second)
    std::fprintf(stderr, "gpupool: %s is not supported: %s\n", function, reason);
  return cudaErrorNotSupported;
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorName* const found = find_error(error);
  return found != nullptr ? found->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorName* const found = find_error(error);
  return found != nullptr ? found->text : "unrecognized error code";
}

namespace {

/// A sticky error ends with its session, and with the reset of a device by any thread.
void forget_ended_error() {
  if (is_sticky(thread_state.last_error) &&
      (thread_state.error_session != driver_session.load(std::memory_order_relaxed)() ||
       thread_state.error_resets != resets_of(thread_state.error_device).load(std::memory_order_relaxed)))
    thread_state.last_error = cudaSuccess;
}

}  // namespace

cudaError_t cudaGetLastError() {
  forget_ended_error();
  const cudaError_t error = thread_state.last_error;
  if (is_sticky(error)) return error;
  if (error == cudaErrorNoKernelImageForDevice && thread_state.peeked) [[unlikely]]
    cleared_launch.store(true);
  thread_state.last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  forget_ended_error();
  thread_state.peeked = true;
  return thread_state.last_error;
}

cudaError_t result_of_waiting(cudaError_t result) {
  if (result != cudaSuccess || !cleared_launch.load(std::memory_order_relaxed)) [[likely]]
    return result;
  return cleared_launch.exchange(false) ? cudaErrorNoKernelImageForDevice : result;
}

}  // namespace gpupool::cudart
