// Channel descriptions of the runtime and array formats of the driver.
#pragma once

#include "cudart/cuda_api.h"

namespace gpupool::cudart {

/// Bytes of one channel; 0 for formats whose elements are not made of equal channels.
size_t format_bytes(CUarray_format format);

/// The driver's format and channel count of a description. False when there is none.
bool driver_format(const cudaChannelFormatDesc& description, CUarray_format& format, unsigned& channels);

cudaChannelFormatDesc channel_description(CUarray_format format, unsigned channels);

}  // namespace gpupool::cudart
