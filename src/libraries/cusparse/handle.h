// What a cusparseHandle_t is, and what all functions do with it: state of this process, never a message.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "libraries/cusparse/status.h"
#include "libraries/shared/arguments.h"
#include "libraries/shared/driver.h"
#include "libraries/shared/export.h"
#include "libraries/shared/launch.h"
#include "libraries/shared/status.h"

namespace gpupool::cusparse {

using operations::Element;

enum PointerMode : int { host = 0, device = 1 };

struct Handle {
  static constexpr std::uint32_t mark = 0x63737073;

  std::uint32_t alive = mark;
  CUstream stream = nullptr;
  int pointer_mode = host;
};

/// The handle, or null: then the call answers NOT_INITIALIZED, as for one that was destroyed.
inline Handle* find(void* handle) {
  auto* const found = static_cast<Handle*>(handle);
  return found != nullptr && found->alive == Handle::mark ? found : nullptr;
}

inline Status status_of(CUresult result) {
  return libraries::status_of(result, libraries::Outcomes<Status>{success, alloc_failed, not_supported,
                                                                  not_initialized, execution_failed});
}

template <class Body>
int guarded(Body&& body) noexcept {
  return libraries::guarded<int>(alloc_failed, internal_error, [&]() -> int { return body(); });
}

/// `body` with the handle, unless it is none.
template <class Body>
int with_handle(void* handle, Body&& body) noexcept {
  return guarded([&]() -> int {
    Handle* const found = find(handle);
    return found == nullptr ? not_initialized : static_cast<int>(body(*found));
  });
}

/// Posts an operation; nothing is waited for.
template <class O>
Status post(const Handle& handle, const O& operation) {
  return status_of(libraries::launch(operation, handle.stream));
}

/// A number of device memory that the program is told: the only thing that is waited for.
template <class T>
Status read_back(const Handle& handle, T* into, std::uint64_t address) {
  const libraries::Driver* driver = nullptr;
  if (const CUresult bad = libraries::enter(driver); bad != CUDA_SUCCESS) return status_of(bad);
  return status_of(libraries::read_back(*driver, into, address, sizeof *into, handle.stream));
}

using libraries::address;

/// A factor as the call was given it.
inline operations::Factor factor(const Handle& handle, const void* value, Element type) {
  return libraries::factor(handle.pointer_mode == device, value, type);
}

}  // namespace gpupool::cusparse
