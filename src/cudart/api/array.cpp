// CUDA arrays.
#include "cudart/array_format.h"
#include "cudart/call.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

cudaError_t describe(const cudaChannelFormatDesc* channels, const cudaExtent& extent, unsigned flags,
                     CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  descriptor = {};
  if (channels == nullptr || !driver_format(*channels, descriptor.Format, descriptor.NumChannels))
    return cudaErrorInvalidChannelDescriptor;
  descriptor.Width = extent.width;
  descriptor.Height = extent.height;
  descriptor.Depth = extent.depth;
  descriptor.Flags = flags;  // the flags have the same values
  return cudaSuccess;
}

cudaError_t read(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  const auto handle = reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
  return forward([&](const EntryPoints& d) { return d.cuArray3DGetDescriptor_v2(&descriptor, handle); });
}

}  // namespace

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) {
  return {x, y, z, w, f};
}

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, cudaExtent extent,
                              unsigned int flags) {
  if (array == nullptr) return cudaErrorInvalidValue;
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  if (const cudaError_t bad = describe(desc, extent, flags, descriptor); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuArray3DCreate_v2(reinterpret_cast<CUarray*>(array), &descriptor);
  });
}

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, size_t width,
                            size_t height, unsigned int flags) {
  return cudart::cudaMalloc3DArray(array, desc, {width, height, 0}, flags);
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* mipmappedArray, const cudaChannelFormatDesc* desc,
                                     cudaExtent extent, unsigned int numLevels, unsigned int flags) {
  if (mipmappedArray == nullptr) return cudaErrorInvalidValue;
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  if (const cudaError_t bad = describe(desc, extent, flags, descriptor); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuMipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(mipmappedArray), &descriptor,
                                    numLevels);
  });
}

cudaError_t cudaFreeArray(cudaArray_t array) {
  if (array == nullptr) return enter();
  return forward([&](const EntryPoints& d) { return d.cuArrayDestroy(reinterpret_cast<CUarray>(array)); });
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t mipmappedArray) {
  if (mipmappedArray == nullptr) return enter();
  return forward([&](const EntryPoints& d) {
    return d.cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(mipmappedArray));
  });
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* desc, cudaArray_const_t array) {
  if (desc == nullptr) return cudaErrorInvalidValue;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  if (const cudaError_t bad = read(array, descriptor); bad != cudaSuccess) return bad;
  *desc = channel_description(descriptor.Format, descriptor.NumChannels);
  return cudaSuccess;
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* desc, cudaExtent* extent, unsigned int* flags,
                             cudaArray_t array) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  if (const cudaError_t bad = read(array, descriptor); bad != cudaSuccess) return bad;
  if (desc != nullptr) *desc = channel_description(descriptor.Format, descriptor.NumChannels);
  if (extent != nullptr) *extent = {descriptor.Width, descriptor.Height, descriptor.Depth};
  if (flags != nullptr) *flags = descriptor.Flags;
  return cudaSuccess;
}

}  // namespace gpupool::cudart
