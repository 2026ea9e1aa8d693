// How much device memory an array takes, computed from its description.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpupool::worker {

/// Bytes that are counted against the share for an array with `levels` mipmap levels; 0 for a description of
/// an array that cannot exist. The driver tells nobody what it really takes, and other sessions on the device
/// blur a measurement, so this is the memory of all elements with rows padded as textures need them.
std::uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned levels);

}  // namespace gpupool::worker
