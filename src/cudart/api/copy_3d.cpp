// Three-dimensional copies.
#include "cudart/array_format.h"
#include "cudart/call.h"
#include "cudart/copy_shape.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

CUarray array_of(cudaArray_t array) {
  return reinterpret_cast<CUarray>(array);
}

/// Positions and extents count elements of an array when one takes part, else bytes.
cudaError_t element_size(cudaArray_t source, cudaArray_t destination, size_t& size) {
  size = 1;
  const cudaArray_t array = source != nullptr ? source : destination;
  if (array == nullptr) return cudaSuccess;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  const cudaError_t bad = forward(
      [&](const EntryPoints& d) { return d.cuArray3DGetDescriptor_v2(&descriptor, array_of(array)); });
  if (bad == cudaSuccess) size = format_bytes(descriptor.Format) * descriptor.NumChannels;
  return bad;
}

cudaError_t peer_shape(const cudaMemcpy3DPeerParms& p, CUDA_MEMCPY3D_PEER& shape) {
  cudaMemcpy3DParms plain{};
  plain.srcArray = p.srcArray;
  plain.srcPos = p.srcPos;
  plain.srcPtr = p.srcPtr;
  plain.dstArray = p.dstArray;
  plain.dstPos = p.dstPos;
  plain.dstPtr = p.dstPtr;
  plain.extent = p.extent;
  plain.kind = cudaMemcpyDeviceToDevice;
  CUDA_MEMCPY3D same{};
  if (const cudaError_t bad = driver_shape(plain, same); bad != cudaSuccess) return bad;
  static_assert(sizeof(same) == sizeof(shape));
  shape = std::bit_cast<CUDA_MEMCPY3D_PEER>(same);
  if (const cudaError_t bad = primary_context(p.srcDevice, shape.srcContext); bad != cudaSuccess) return bad;
  return primary_context(p.dstDevice, shape.dstContext);
}

}  // namespace

cudaError_t driver_shape(const cudaMemcpy3DParms& p, CUDA_MEMCPY3D& shape) {
  if ((p.srcArray != nullptr) == (p.srcPtr.ptr != nullptr) ||
      (p.dstArray != nullptr) == (p.dstPtr.ptr != nullptr))
    return cudaErrorInvalidValue;
  if (!is_copy_kind(p.kind)) return cudaErrorInvalidMemcpyDirection;
  size_t element = 1;
  if (const cudaError_t bad = element_size(p.srcArray, p.dstArray, element); bad != cudaSuccess) return bad;
  shape = {};
  shape.WidthInBytes = p.extent.width * element;
  shape.Height = p.extent.height;
  shape.Depth = p.extent.depth;
  if (p.srcArray != nullptr) {
    shape.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    shape.srcArray = array_of(p.srcArray);
    shape.srcXInBytes = p.srcPos.x * element;
  } else {
    set_source(shape, p.srcPtr.ptr, p.srcPtr.pitch, p.kind);
    shape.srcHeight = p.srcPtr.ysize;
    shape.srcXInBytes = p.srcPos.x;
  }
  shape.srcY = p.srcPos.y;
  shape.srcZ = p.srcPos.z;
  if (p.dstArray != nullptr) {
    shape.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    shape.dstArray = array_of(p.dstArray);
    shape.dstXInBytes = p.dstPos.x * element;
  } else {
    set_destination(shape, p.dstPtr.ptr, p.dstPtr.pitch, p.kind);
    shape.dstHeight = p.dstPtr.ysize;
    shape.dstXInBytes = p.dstPos.x;
  }
  shape.dstY = p.dstPos.y;
  shape.dstZ = p.dstPos.z;
  return cudaSuccess;
}

cudaMemcpy3DParms runtime_shape(const CUDA_MEMCPY3D& shape) {
  cudaMemcpy3DParms p{};
  size_t element = 1;
  const auto array = [](CUarray a) { return reinterpret_cast<cudaArray_t>(a); };
  const bool from_array = shape.srcMemoryType == CU_MEMORYTYPE_ARRAY;
  const bool to_array = shape.dstMemoryType == CU_MEMORYTYPE_ARRAY;
  if (element_size(from_array ? array(shape.srcArray) : nullptr, to_array ? array(shape.dstArray) : nullptr,
                   element) != cudaSuccess ||
      element == 0)
    element = 1;
  if (from_array) {
    p.srcArray = array(shape.srcArray);
  } else {
    void* const address = shape.srcMemoryType == CU_MEMORYTYPE_HOST ? const_cast<void*>(shape.srcHost)
                                                                    : as<void*>(shape.srcDevice);
    p.srcPtr = {address, shape.srcPitch, shape.WidthInBytes, shape.srcHeight};
  }
  if (to_array) {
    p.dstArray = array(shape.dstArray);
  } else {
    void* const address =
        shape.dstMemoryType == CU_MEMORYTYPE_HOST ? shape.dstHost : as<void*>(shape.dstDevice);
    p.dstPtr = {address, shape.dstPitch, shape.WidthInBytes, shape.dstHeight};
  }
  p.srcPos = {from_array ? shape.srcXInBytes / element : shape.srcXInBytes, shape.srcY, shape.srcZ};
  p.dstPos = {to_array ? shape.dstXInBytes / element : shape.dstXInBytes, shape.dstY, shape.dstZ};
  p.extent = {shape.WidthInBytes / element, shape.Height, shape.Depth};
  const bool source_on_host = shape.srcMemoryType == CU_MEMORYTYPE_HOST;
  const bool destination_on_host = shape.dstMemoryType == CU_MEMORYTYPE_HOST;
  p.kind = shape.srcMemoryType == CU_MEMORYTYPE_UNIFIED || shape.dstMemoryType == CU_MEMORYTYPE_UNIFIED
               ? cudaMemcpyDefault
           : source_on_host ? (destination_on_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
                            : (destination_on_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice);
  return p;
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p, CUstream default_stream) {
  if (p == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D shape;
  if (const cudaError_t bad = driver_shape(*p, shape); bad != cudaSuccess) return bad;
  if (default_stream == nullptr)
    return forward([&](const EntryPoints& d) { return d.cuMemcpy3D_v2(&shape); });
  return finish(forward([&](const EntryPoints& d) { return d.cuMemcpy3DAsync_v2(&shape, default_stream); }),
                default_stream, true);
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  if (p == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D shape;
  if (const cudaError_t bad = driver_shape(*p, shape); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuMemcpy3DAsync_v2(&shape, stream); });
}

cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* p, CUstream default_stream) {
  if (p == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  CUDA_MEMCPY3D_PEER shape;
  if (const cudaError_t bad = peer_shape(*p, shape); bad != cudaSuccess) return bad;
  if (default_stream == nullptr)
    return forward([&](const EntryPoints& d) { return d.cuMemcpy3DPeer(&shape); });
  return finish(forward([&](const EntryPoints& d) { return d.cuMemcpy3DPeerAsync(&shape, default_stream); }),
                default_stream, true);
}

cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  if (p == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  CUDA_MEMCPY3D_PEER shape;
  if (const cudaError_t bad = peer_shape(*p, shape); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuMemcpy3DPeerAsync(&shape, stream); });
}

}  // namespace gpupool::cudart
