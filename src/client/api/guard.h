// The boundary to C: programs in C and Python cannot catch, so what is thrown would end them.
#pragma once

#include <cuda.h>

#include <new>
#include <system_error>
#include <utility>

#include "shared_api/error_log.h"

namespace gpupool::client {

/// The result of `body`; of what it throws, what CUDA says in its place. The program's callbacks hear of its
/// errors when it is over and holds no lock any more.
template <class Body>
CUresult guarded(Body&& body) noexcept {
  const CallbacksLater later;
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::system_error&) {  // no thread, no descriptor
    return CUDA_ERROR_OPERATING_SYSTEM;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace gpupool::client
