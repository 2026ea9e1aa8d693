// What surrounds every API function: readiness, the checkpoint gate, and exceptions turned into results.
#pragma once

#include <new>
#include <type_traits>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/device/driver.h"

namespace softgpu::driver {

// Runs `body` (returning void or CUresult); for functions that work before cuInit too.
template <class Body>
CUresult entry_any_time(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
      body();
      return CUDA_SUCCESS;
    } else {
      return body();
    }
  } catch (const Error& error) {
    return error.code();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

// The usual form. Must not be nested: a waiting checkpoint would block the inner call for ever.
template <class Body>
CUresult entry(Body&& body) noexcept {
  Driver& driver = Driver::get();
  if (!driver.usable()) return CUDA_ERROR_NOT_INITIALIZED;
  const InsideGate inside(driver.gate);
  return entry_any_time(std::forward<Body>(body));
}

}  // namespace softgpu::driver
