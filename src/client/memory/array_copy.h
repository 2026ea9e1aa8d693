// Copies with a CUDA array on at least one side.
#pragma once

#include <cuda.h>

namespace gpupool::client {

[[nodiscard]] inline bool has_array_side(CUmemorytype source, CUmemorytype destination) {
  return source == CU_MEMORYTYPE_ARRAY || destination == CU_MEMORYTYPE_ARRAY;
}

CUresult copy_with_arrays(CUDA_MEMCPY3D shape, CUstream stream);
CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D& from);

/// A row of bytes of a one-dimensional array, for the copies that give an offset.
CUDA_MEMCPY3D row_of_arrays(CUarray to, CUarray from, std::size_t to_offset, std::size_t from_offset,
                            std::size_t size);

}  // namespace gpupool::client
