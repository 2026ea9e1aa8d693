// Handlers of arrays: their memory counts against the share, and host memory passes through staging.
#include <algorithm>
#include <cstring>

#include "generated/handlers.h"
#include "worker/conversation/call.h"
#include "worker/objects/array_size.h"

namespace gpupool::worker {
namespace {

/// Arrays whose memory the program maps itself.
constexpr unsigned without_memory = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

/// Counts the array, then makes it; `make(driver's handle)` calls the driver.
template <class H, class F>
CUresult create(Call& x, wire::Kind kind, std::uint64_t handle, const CUDA_ARRAY3D_DESCRIPTOR& array,
                unsigned levels, F make) {
  if (!x.handles.vacant(kind, handle)) return CUDA_ERROR_INVALID_HANDLE;
  if ((array.Flags & without_memory) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const std::uint64_t bytes = array_bytes(array, levels);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  MemoryAccount* const account = x.session.account_of_current();
  if (account == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!account->reserve_beside(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  H made = nullptr;
  const CUresult result = make(&made);
  if (result != CUDA_SUCCESS) {
    account->release_beside(bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) account->refused(bytes);
    return result;
  }
  x.handles.bind(kind, handle, made);
  x.session.arrays.add(handle, *account, bytes, x.current());
  return CUDA_SUCCESS;
}

void forget_parts(Call& x, std::uint64_t parent) {
  x.session.arrays.release_parts(parent,
                                 [&](std::uint64_t part) { x.handles.drop(wire::Kind::array, part); });
}

struct ArrayBlock {
  CUarray array;
  CUstream stream;
  std::uint64_t x, y, z, width, height, depth;

  [[nodiscard]] bool sane() const {
    constexpr std::uint64_t most = std::uint64_t{1} << 24;  // bytes or elements along one axis
    return width != 0 && height != 0 && depth != 0 && width <= most && height <= most && depth <= most &&
           x <= most && y <= most && z <= most && width * height <= (std::uint64_t{1} << 44) / depth;
  }
  [[nodiscard]] std::uint64_t packed_size() const { return width * height * depth; }
};

template <class M>
CUresult read_block(Call& x, const M& m, ArrayBlock& out) {
  out = {nullptr, nullptr, m.x, m.y, m.z, m.width, m.height, m.depth};
  if (!x.handles.find(wire::Kind::array, m.array, out.array) ||
      !x.handles.find(wire::Kind::stream, m.stream, out.stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return out.sane() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// Between packed rows in host memory and a part of the array. The host side is done when this returns.
CUresult copy_part(Call& x, const ArrayBlock& b, bool to_array, std::byte* host, std::uint64_t from_x,
                   std::uint64_t from_y, std::uint64_t from_z, std::uint64_t width, std::uint64_t rows) {
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = width;
  copy.Height = rows;
  copy.Depth = 1;
  if (to_array) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host;
    copy.srcPitch = width;
    copy.srcHeight = rows;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = b.array;
    copy.dstXInBytes = b.x + from_x;
    copy.dstY = b.y + from_y;
    copy.dstZ = b.z + from_z;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = b.array;
    copy.srcXInBytes = b.x + from_x;
    copy.srcY = b.y + from_y;
    copy.srcZ = b.z + from_z;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = host;
    copy.dstPitch = width;
    copy.dstHeight = rows;
  }
  // In the stream itself: the legacy stream would wait for others, and end their captures.
  const CUresult given = x.api.cuMemcpy3DAsync_v2_(&copy, b.stream);
  return given == CUDA_SUCCESS ? x.api.cuStreamSynchronize_(b.stream) : given;
}

/// Calls `part(x, y, z, width, rows)` for pieces that fit a staging chunk, in the order of packed bytes.
template <class F>
CUresult each_part(const ArrayBlock& b, F part) {
  const std::uint64_t wide = std::min<std::uint64_t>(b.width, Staging::chunk_bytes);
  const std::uint64_t tall = std::max<std::uint64_t>(1, Staging::chunk_bytes / b.width);
  for (std::uint64_t z = 0; z < b.depth; ++z) {
    for (std::uint64_t y = 0; y < b.height; y += tall) {
      for (std::uint64_t at = 0; at < b.width; at += wide) {
        const CUresult result = part(at, y, z, std::min(wide, b.width - at), std::min(tall, b.height - y));
        if (result != CUDA_SUCCESS) return result;
      }
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_cuArrayCreate_v2(Call& x, const messages::cuArrayCreate_v2& m, replies::cuArrayCreate_v2&) {
  CUDA_ARRAY_DESCRIPTOR array{};
  std::memcpy(&array, m.pAllocateArray.data(), sizeof(array));
  const CUDA_ARRAY3D_DESCRIPTOR shape{array.Width, array.Height, 0, array.Format, array.NumChannels, 0};
  return create<CUarray>(x, wire::Kind::array, m.pHandle, shape, 1,
                         [&](CUarray* made) { return x.api.cuArrayCreate_v2_(made, &array); });
}

CUresult run_cuArray3DCreate_v2(Call& x, const messages::cuArray3DCreate_v2& m,
                                replies::cuArray3DCreate_v2&) {
  CUDA_ARRAY3D_DESCRIPTOR array{};
  std::memcpy(&array, m.pAllocateArray.data(), sizeof(array));
  return create<CUarray>(x, wire::Kind::array, m.pHandle, array, 1,
                         [&](CUarray* made) { return x.api.cuArray3DCreate_v2_(made, &array); });
}

CUresult run_cuMipmappedArrayCreate(Call& x, const messages::cuMipmappedArrayCreate& m,
                                    replies::cuMipmappedArrayCreate&) {
  CUDA_ARRAY3D_DESCRIPTOR array{};
  std::memcpy(&array, m.pMipmappedArrayDesc.data(), sizeof(array));
  return create<CUmipmappedArray>(
      x, wire::Kind::mipmapped_array, m.pHandle, array, std::min(m.numMipmapLevels, 32u),
      [&](CUmipmappedArray* made) { return x.api.cuMipmappedArrayCreate_(made, &array, m.numMipmapLevels); });
}

CUresult run_cuArrayDestroy(Call& x, const messages::cuArrayDestroy& m, replies::cuArrayDestroy&) {
  CUarray array = nullptr;
  if (!x.handles.find(wire::Kind::array, m.hArray, array)) return CUDA_ERROR_INVALID_HANDLE;
  if (x.session.arrays.is_part(m.hArray)) return CUDA_ERROR_INVALID_HANDLE;  // it ends with its parent
  x.waits();
  x.retires(array);
  const CUresult result = x.api.cuArrayDestroy_(array);
  if (result != CUDA_SUCCESS) return result;
  forget_parts(x, m.hArray);
  x.handles.drop(wire::Kind::array, m.hArray);
  x.session.arrays.release(m.hArray);
  return CUDA_SUCCESS;
}

CUresult run_cuMipmappedArrayDestroy(Call& x, const messages::cuMipmappedArrayDestroy& m,
                                     replies::cuMipmappedArrayDestroy&) {
  CUmipmappedArray array = nullptr;
  if (!x.handles.find(wire::Kind::mipmapped_array, m.hMipmappedArray, array)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  x.waits();
  forget_parts(x, m.hMipmappedArray);
  x.retires(array);
  const CUresult result = x.api.cuMipmappedArrayDestroy_(array);
  x.handles.drop(wire::Kind::mipmapped_array, m.hMipmappedArray);
  x.session.arrays.release(m.hMipmappedArray);
  return result;
}

CUresult run_cuMipmappedArrayGetLevel(Call& x, const messages::cuMipmappedArrayGetLevel& m,
                                      replies::cuMipmappedArrayGetLevel& reply) {
  CUmipmappedArray array = nullptr;
  if (!x.handles.vacant(wire::Kind::array, m.pLevelArray) ||
      !x.handles.find(wire::Kind::mipmapped_array, m.hMipmappedArray, array)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUarray level = nullptr;
  const CUresult result = x.api.cuMipmappedArrayGetLevel_(&level, array, m.level);
  if (result != CUDA_SUCCESS) return result;
  reply.pLevelArray = x.handles.name_or_bind(wire::Kind::array, m.pLevelArray, level);
  x.session.arrays.add_part(m.hMipmappedArray, reply.pLevelArray);
  return CUDA_SUCCESS;
}

CUresult run_cuArrayGetPlane(Call& x, const messages::cuArrayGetPlane& m, replies::cuArrayGetPlane& reply) {
  CUarray array = nullptr;
  if (!x.handles.vacant(wire::Kind::array, m.pPlaneArray) ||
      !x.handles.find(wire::Kind::array, m.hArray, array)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUarray plane = nullptr;
  const CUresult result = x.api.cuArrayGetPlane_(&plane, array, m.planeIdx);
  if (result != CUDA_SUCCESS) return result;
  reply.pPlaneArray = x.handles.name_or_bind(wire::Kind::array, m.pPlaneArray, plane);
  if (reply.pPlaneArray != m.hArray) x.session.arrays.add_part(m.hArray, reply.pPlaneArray);
  return CUDA_SUCCESS;
}

CUresult run_CopyArrayFromHost(Call& x, const messages::CopyArrayFromHost& m, replies::CopyArrayFromHost&) {
  ArrayBlock block{};
  if (const CUresult bad = read_block(x, m, block); bad != CUDA_SUCCESS) return bad;
  if (block.packed_size() != x.payload_left()) return CUDA_ERROR_INVALID_VALUE;
  x.waits();
  if (const CUresult bad = x.api.cuStreamSynchronize_(block.stream); bad != CUDA_SUCCESS) return bad;
  return each_part(block, [&](std::uint64_t at, std::uint64_t y, std::uint64_t z, std::uint64_t width,
                              std::uint64_t rows) {
    std::byte* chunk = nullptr;
    if (const CUresult bad = x.session.staging().chunk(0, chunk); bad != CUDA_SUCCESS) return bad;
    if (!x.take_payload(chunk, width * rows)) return CUDA_ERROR_INVALID_VALUE;
    return copy_part(x, block, true, chunk, at, y, z, width, rows);
  });
}

CUresult run_CopyArrayToHost(Call& x, const messages::CopyArrayToHost& m, replies::CopyArrayToHost&) {
  ArrayBlock block{};
  if (const CUresult bad = read_block(x, m, block); bad != CUDA_SUCCESS) return bad;
  x.waits();
  if (const CUresult bad = x.api.cuStreamSynchronize_(block.stream); bad != CUDA_SUCCESS) return bad;
  // Once the reply has begun an error can no longer be answered, so the far corner is read before it.
  std::byte* probe = nullptr;
  CUresult result = x.session.staging().chunk(0, probe);
  if (result == CUDA_SUCCESS) {
    result = copy_part(x, block, false, probe, 0, block.height - 1, block.depth - 1,
                       std::min<std::uint64_t>(block.width, Staging::chunk_bytes), 1);
  }
  if (result != CUDA_SUCCESS) return result;
  if (block.width > Staging::chunk_bytes) return CUDA_ERROR_INVALID_VALUE;  // no device has such rows
  x.reply_payload({block.packed_size(), nullptr, [&x, block](wire::Stream& client) {
                     return each_part(block, [&](std::uint64_t at, std::uint64_t y, std::uint64_t z,
                                                 std::uint64_t width, std::uint64_t rows) {
                              std::byte* chunk = nullptr;
                              CUresult part = x.session.staging().chunk(0, chunk);
                              if (part == CUDA_SUCCESS) {
                                part = copy_part(x, block, false, chunk, at, y, z, width, rows);
                              }
                              if (part != CUDA_SUCCESS) return part;
                              return client.send({chunk, width * rows}) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_OPERATING_SYSTEM;
                            }) == CUDA_SUCCESS;
                   }});
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker
