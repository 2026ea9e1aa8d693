// Copies. A call returns when the copy is done if it is a synchronous one, or if it touches pageable memory
// (which the program may free or change as soon as the call is back); otherwise the copy is put into the
// stream.
#include "softgpu/driver/memory/copy.h"

#include <cstring>
#include <memory>
#include <vector>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

// Small pageable sources are copied aside, so that the call need not wait for the work before it.
constexpr std::size_t staging_limit = std::size_t{64} << 10;

std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

CUresult copy_now(std::uint64_t destination, std::uint64_t source, std::size_t size) {
  return entry([&] {
    const auto stream = resolve_stream(nullptr);
    if (size == 0) return;
    require(destination && source);
    issue_and_wait(stream, make_copy(destination, source, size));
  });
}

CUresult checked_copy_now(std::uint64_t destination, bool device_destination, std::uint64_t source,
                          bool device_source, std::size_t size) {
  return entry([&] {
    const auto stream = resolve_stream(nullptr);
    if (device_destination) require_device_range(destination, size);
    if (device_source) require_device_range(source, size);
    if (size == 0) return;
    require(destination && source);
    issue_and_wait(stream, make_copy(destination, source, size));
  });
}

// A copy between contexts comes behind all work of both, and of the current one.
CUresult wait_for_contexts(CUcontext one, CUcontext other) {
  return entry([&] {
    for (const CUcontext context : {CUcontext{}, one, other}) given_or_current(context)->synchronize();
  });
}

void copy_in_stream(CUstream handle, std::uint64_t destination, std::uint64_t source, std::size_t size) {
  const auto stream = resolve_stream(handle);
  if (size == 0) return;
  require(destination && source);
  Operation operation = make_copy(destination, source, size);
  const bool pageable_source = !is_known_memory(source, size);
  const bool pageable_target = !is_known_memory(destination, size);
  if ((!pageable_source && !pageable_target) || is_capturing(*stream)) {
    issue(stream, std::move(operation));
  } else if (!pageable_target && size <= staging_limit) {
    auto staged = std::make_shared<std::vector<char>>(size);
    std::memcpy(staged->data(), reinterpret_cast<const void*>(source), size);
    operation.run = [staged, destination] {
      std::memcpy(reinterpret_cast<void*>(destination), staged->data(), staged->size());
    };
    issue(stream, std::move(operation));
  } else {
    issue_and_wait(stream, operation);
  }
}

CUresult shaped_copy_now(const CUDA_MEMCPY3D& shape) {
  return entry([&] { issue_and_wait(resolve_stream(nullptr), make_copy(shape)); });
}

CUresult shaped_copy_in_stream(const CUDA_MEMCPY3D& shape, CUstream handle) {
  return entry([&] {
    const auto stream = resolve_stream(handle);
    Operation operation = make_copy(shape);
    if (touches_pageable(shape) && !is_capturing(*stream)) {
      issue_and_wait(stream, operation);
    } else {
      issue(stream, std::move(operation));
    }
  });
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_now(dst, src, ByteCount);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  const CUresult bad = wait_for_contexts(dstContext, srcContext);
  return bad == CUDA_SUCCESS ? checked_copy_now(dstDevice, true, srcDevice, true, ByteCount) : bad;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return checked_copy_now(dstDevice, true, address_of(srcHost), false, ByteCount);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return checked_copy_now(address_of(dstHost), false, srcDevice, true, ByteCount);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return checked_copy_now(dstDevice, true, srcDevice, true, ByteCount);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return entry([&] { copy_in_stream(hStream, dst, src, ByteCount); });
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext,
                           size_t ByteCount, CUstream hStream) {
  return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return entry([&] {
    require_device_range(dstDevice, ByteCount);
    copy_in_stream(hStream, dstDevice, address_of(srcHost), ByteCount);
  });
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return entry([&] {
    require_device_range(srcDevice, ByteCount);
    copy_in_stream(hStream, address_of(dstHost), srcDevice, ByteCount);
  });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return entry([&] {
    require_device_range(dstDevice, ByteCount);
    require_device_range(srcDevice, ByteCount);
    copy_in_stream(hStream, dstDevice, srcDevice, ByteCount);
  });
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  return pCopy ? shaped_copy_now(as_3d(*pCopy)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return cuMemcpy2D_v2(pCopy);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  return pCopy ? shaped_copy_now(*pCopy) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  if (!pCopy) return CUDA_ERROR_INVALID_VALUE;
  const CUresult bad = wait_for_contexts(pCopy->dstContext, pCopy->srcContext);
  return bad == CUDA_SUCCESS ? shaped_copy_now(as_3d(*pCopy)) : bad;
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return pCopy ? shaped_copy_in_stream(as_3d(*pCopy), hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return pCopy ? shaped_copy_in_stream(*pCopy, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return pCopy ? shaped_copy_in_stream(as_3d(*pCopy), hStream) : CUDA_ERROR_INVALID_VALUE;
}
