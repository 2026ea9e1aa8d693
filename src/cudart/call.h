// What every exported function does around its driver call.
#pragma once

#include <bit>
#include <new>
#include <type_traits>
#include <utility>

#include "cudart/context.h"
#include "cudart/error.h"

#define GPUPOOL_CUDART_EXPORT __attribute__((visibility("default")))

namespace gpupool::cudart {

/// The runtime's and the driver's types are two names for the same bits: handles, enumerations, structures.
template <class To, class From>
inline To as(From value) {
  using Plain = std::remove_cv_t<From>;
  if constexpr (std::is_same_v<To, Plain>) {
    return value;
  } else if constexpr (std::is_class_v<Plain>) {
    return std::bit_cast<To>(value);
  } else {
    return (To)value;
  }
}

/// The stream that a function of the per-thread flavour means.
inline cudaStream_t per_thread(cudaStream_t stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

/// Remembers a failure for cudaGetLastError. That work is not done yet is an answer and no failure: CUDA's
/// programming guide says that it is not reported there, and CUB takes what is for its own failure.
inline cudaError_t record(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) [[unlikely]] {
    thread_state.last_error = error;
    thread_state.error_session = driver_session.load(std::memory_order_relaxed)();
    thread_state.error_device = thread_state.device;
    thread_state.error_resets = resets_of(thread_state.device).load(std::memory_order_relaxed);
    thread_state.peeked = false;
  }
  return error;
}

/// The boundary to C: programs in C and Python cannot catch, so what is thrown would end them.
template <class Body>
inline cudaError_t guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return record(cudaErrorMemoryAllocation);
  } catch (...) {  // no thread, no descriptor
    return record(cudaErrorOperatingSystem);
  }
}

/// A driver call in the thread's context. `call` may run twice: when the first attempt finds no context.
template <class Call>
inline cudaError_t forward(Call&& call) {
  if (const cudaError_t bad = enter(); bad != cudaSuccess) [[unlikely]]
    return bad;
  CUresult result = call(driver());
  if (result == CUDA_SUCCESS) [[likely]]
    return cudaSuccess;
  if (lost_context(result) && regain_context(result)) result = call(driver());
  return translate(result);
}

/// A driver call that needs no context.
template <class Call>
inline cudaError_t forward_without_context(Call&& call) {
  if (loaded_driver.load(std::memory_order_acquire) == nullptr) [[unlikely]] {
    if (const cudaError_t bad = load_driver(); bad != cudaSuccess) return bad;
  }
  return translate(call(driver()));
}

}  // namespace gpupool::cudart
