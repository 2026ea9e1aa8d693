// The copy functions in all their forms.
#include <cuda.h>

#include <cstring>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/memory/array_copy.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/copy.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

/// Before this process copies within its own memory, which the device's earlier work may still read and
/// write.
CUresult wait_for_device(CUstream stream, bool asynchronous) {
  return asynchronous ? cuStreamSynchronize(stream) : cuCtxSynchronize();
}

CUresult copy_any(CUdeviceptr dst, CUdeviceptr src, std::size_t size, CUstream stream, bool asynchronous) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (size != 0 && (dst == 0 || src == 0)) return CUDA_ERROR_INVALID_VALUE;
  const bool to_device = is_device_address(dst), from_device = is_device_address(src);
  if (to_device && from_device) return copy_on_device(dst, src, size, stream, asynchronous);
  if (to_device) return copy_from_host(dst, reinterpret_cast<const void*>(src), size, stream, asynchronous);
  if (from_device) return copy_to_host(reinterpret_cast<void*>(dst), src, size, stream, asynchronous);
  if (const CUresult bad = wait_for_device(stream, asynchronous); bad != CUDA_SUCCESS) return bad;
  std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), size);
  return CUDA_SUCCESS;
}

/// One side of a 2D or 3D copy. False for what is not linear memory. Where there is no memory its block has
/// no address either, wherever in it the copy begins.
bool side(CUmemorytype type, const void* host, CUdeviceptr device, std::uint64_t x, std::uint64_t y,
          std::uint64_t z, std::uint64_t pitch, std::uint64_t rows, const Extent& extent, Block& out,
          bool& on_device) {
  if (type == CU_MEMORYTYPE_ARRAY) return false;
  const std::uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(host) : device;
  // Coherent memory is the device's too, whatever it is called here.
  on_device = type == CU_MEMORYTYPE_DEVICE || is_device_address(base);
  out.pitch = pitch != 0 ? pitch : extent.width + x;
  out.slice_pitch = out.pitch * (rows != 0 ? rows : extent.height + y);
  out.address = base == 0 ? 0 : base + z * out.slice_pitch + y * out.pitch + x;
  return true;
}

CUresult copy_blocks(const Block& to, bool to_device, const Block& from, bool from_device,
                     const Extent& extent, CUstream stream, bool asynchronous) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
  constexpr std::uint64_t limit = std::uint64_t{1} << 40;
  if (extent.width > limit || extent.height > limit / extent.width ||
      extent.depth > limit / (extent.width * extent.height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (to.pitch < extent.width || from.pitch < extent.width) return CUDA_ERROR_INVALID_VALUE;
  if (to.address == 0 || from.address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (to_device && from_device) {
    const CUresult copied = copy_rows_on_device(to, from, extent, stream);
    const bool seen = coherent_memory().find(to.address) || coherent_memory().find(from.address);
    return copied == CUDA_SUCCESS && seen && !asynchronous ? cuStreamSynchronize(nullptr) : copied;
  }
  if (to_device) return copy_rows_from_host(to, from, extent, stream, asynchronous);
  if (from_device) return copy_rows_to_host(to, from, extent, stream, asynchronous);
  if (const CUresult bad = wait_for_device(stream, asynchronous); bad != CUDA_SUCCESS) return bad;
  for (std::uint64_t z = 0; z < extent.depth; ++z) {
    for (std::uint64_t y = 0; y < extent.height; ++y) {
      std::memmove(reinterpret_cast<void*>(to.address + z * to.slice_pitch + y * to.pitch),
                   reinterpret_cast<const void*>(from.address + z * from.slice_pitch + y * from.pitch),
                   extent.width);
    }
  }
  return CUDA_SUCCESS;
}

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, bool asynchronous) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (has_array_side(c->srcMemoryType, c->dstMemoryType)) return copy_with_arrays(as_3d(*c), stream);
  const Extent extent{c->WidthInBytes, c->Height, 1};
  Block to, from;
  bool to_device = false, from_device = false;
  if (!side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, 0, c->srcPitch, 0, extent,
            from, from_device) ||
      !side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, 0, c->dstPitch, 0, extent,
            to, to_device)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return copy_blocks(to, to_device, from, from_device, extent, stream, asynchronous);
}

CUresult copy_3d(const CUDA_MEMCPY3D* c, CUstream stream, bool asynchronous) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (has_array_side(c->srcMemoryType, c->dstMemoryType)) return copy_with_arrays(*c, stream);
  const Extent extent{c->WidthInBytes, c->Height, c->Depth};
  Block to, from;
  bool to_device = false, from_device = false;
  if (!side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch,
            c->srcHeight, extent, from, from_device) ||
      !side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch,
            c->dstHeight, extent, to, to_device)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return copy_blocks(to, to_device, from, from_device, extent, stream, asynchronous);
}

}  // namespace

namespace gpupool::client::api {

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  runtime().begin_if_over();
  return copy_from_host(dstDevice, srcHost, ByteCount, nullptr, false);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  runtime().begin_if_over();
  return copy_from_host(dstDevice, srcHost, ByteCount, hStream, true);
}
CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  runtime().begin_if_over();
  return copy_to_host(dstHost, srcDevice, ByteCount, nullptr, false);
}
CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  runtime().begin_if_over();
  return copy_to_host(dstHost, srcDevice, ByteCount, hStream, true);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  runtime().begin_if_over();
  if (runtime().several()) return copy_on_device(dstDevice, srcDevice, ByteCount, nullptr, false);
  messages::cuMemcpyDtoD_v2 m;
  m.dstDevice = dstDevice;
  m.srcDevice = srcDevice;
  m.ByteCount = ByteCount;
  return post(m);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  runtime().begin_if_over();
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  if (runtime().several()) return copy_on_device(dstDevice, srcDevice, ByteCount, hStream, true);
  messages::cuMemcpyDtoDAsync_v2 m;
  m.dstDevice = dstDevice;
  m.srcDevice = srcDevice;
  m.ByteCount = ByteCount;
  m.hStream = raw(hStream);
  return post(m);
}
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  runtime().begin_if_over();
  return copy_any(dst, src, ByteCount, nullptr, false);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  runtime().begin_if_over();
  return copy_any(dst, src, ByteCount, hStream, true);
}
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext, size_t ByteCount) {
  return copy_on_device(dstDevice, srcDevice, ByteCount, nullptr, false);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext,
                           size_t ByteCount, CUstream hStream) {
  return copy_on_device(dstDevice, srcDevice, ByteCount, hStream, true);
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  return copy_2d(pCopy, nullptr, false);
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return copy_2d(pCopy, nullptr, false);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return copy_2d(pCopy, hStream, true);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  return copy_3d(pCopy, nullptr, false);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return copy_3d(pCopy, hStream, true);
}

}  // namespace gpupool::client::api
