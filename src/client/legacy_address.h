// The 32-bit forms of the API. Their addresses reach 4 GiB; the session's memory lies far above, so an
// allocation finds no room that could be said, and an address means memory only where one really lies there.
#pragma once

// Declares the old forms, and every name as the symbol that is exported under it.
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "client/call.h"
#include "client/copy.h"
#include "client/log.h"

namespace gpupool::client {

inline void remember_legacy(const char* function) {
  remember(std::string(function) +
           " is the 32-bit form, which cannot say an address above 4 GiB: use the form ending in _v2");
}

/// Calls `use()` if each address means memory, or none is touched.
template <class F>
CUresult with_legacy_addresses(const char* function, std::initializer_list<CUdeviceptr_v1> addresses,
                               std::uint64_t bytes, F use) {
  for (const CUdeviceptr_v1 address : addresses) {
    if (bytes != 0 && !is_device_address(address)) {
      if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
      remember_legacy(function);
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return use();
}

/// Sizes are told as far as 32 bits reach.
inline unsigned legacy_size(std::size_t size) {
  constexpr std::size_t most = std::numeric_limits<unsigned>::max();
  return static_cast<unsigned>(size < most ? size : most);
}

}  // namespace gpupool::client
