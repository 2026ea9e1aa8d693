// Results in host memory: the only calls of cuBLAS that wait.
#pragma once

#include <cstdint>
#include <mutex>

#include "libraries/cublas/handle.h"
#include "libraries/shared/driver.h"

namespace gpupool::cublas {

/// Device memory for one result, made when the first is wanted. A session that ended took it along.
inline CUresult result_place(Handle& handle, const libraries::Driver& driver) {
  const unsigned session = driver.session();
  if (handle.result != 0 && handle.result_session == session) return CUDA_SUCCESS;
  handle.result = 0;
  handle.result_session = session;
  return driver.cuMemAlloc_v2(&handle.result, Handle::result_bytes);
}

/// Posts what `write` writes at a place in device memory, copies it to `result` and waits for it: a stream
/// that is captured does not let it, as with cuBLAS.
template <class Write>
int into_host(Handle& handle, void* result, std::size_t bytes, Write write) {
  const std::lock_guard lock(handle.result_mutex);
  const libraries::Driver* driver = nullptr;
  if (const CUresult bad = libraries::enter(driver); bad != CUDA_SUCCESS) return status_of(bad);
  if (const CUresult bad = result_place(handle, *driver); bad != CUDA_SUCCESS) return status_of(bad);
  if (const CUresult bad = write(handle.result); bad != CUDA_SUCCESS) return status_of(bad);
  return status_of(libraries::read_back(*driver, result, handle.result, bytes, handle.stream));
}

inline void free_result_place(Handle& handle) {
  const libraries::Driver* driver = nullptr;
  if (handle.result == 0 || libraries::enter(driver) != CUDA_SUCCESS) return;
  if (handle.result_session == driver->session()) driver->cuMemFree_v2(handle.result);
}

}  // namespace gpupool::cublas
