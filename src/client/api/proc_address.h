// The table behind cuGetProcAddress, generated from cuda.h and cudaTypedefs.h.
#pragma once

#include <cstddef>

namespace gpupool::client {

struct ProcAddress {
  const char* base;  ///< name without version and stream suffix
  bool per_thread;   ///< the _ptds / _ptsz form
  int version;       ///< first CUDA version with this form, 1000 * major + 10 * minor
  void* address;
};
extern const ProcAddress proc_addresses[];  ///< sorted by (base, suffix, version)
extern const std::size_t proc_address_count;

}  // namespace gpupool::client
