// Copies and fills. Device memory is host memory here, so each comes down to memory functions of the CPU;
// what remains is CUDA's description of shapes and its rules about which addresses are valid.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/graph/operation.h"

namespace softgpu::driver {

// Throws Error(INVALID_VALUE) unless [address, address + size) is memory known to the driver. Size 0 is fine.
void require_device_range(std::uint64_t address, std::size_t size);

// 1D copy of bytes that do not overlap (or are the same).
Operation make_copy(std::uint64_t destination, std::uint64_t source, std::size_t size);

// 2D and 3D copies between host, device and unified addresses and arrays. All validation happens here.
// Throws Error(INVALID_VALUE).
Operation make_copy(const CUDA_MEMCPY3D& shape);
CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D& shape);
CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY3D_PEER& shape);
// True if either side is pageable host memory, so that the call has to finish the copy before it returns.
bool touches_pageable(const CUDA_MEMCPY3D& shape);

// Fills rows of `width` elements of 1, 2 or 4 bytes. Throws Error(INVALID_VALUE).
Operation make_fill(const CUDA_MEMSET_NODE_PARAMS& shape);

}  // namespace softgpu::driver
