// The table behind cuGetProcAddress; generated from the CUDA headers (generate_exports.py).
#pragma once

#include <cstddef>

namespace softgpu::driver {

struct ProcAddress {
  const char* name;  // base name, e.g. "cuMemAlloc"
  int version;       // first CUDA version with this ABI, e.g. 3020
  bool per_thread;   // a _ptds or _ptsz variant
  void* address;
};

// Sorted by name, then version.
extern const ProcAddress proc_addresses[];
extern const std::size_t proc_address_count;

}  // namespace softgpu::driver
