// Handlers of pitched copies. On the wire the rows are packed; on the device they lie `pitch` bytes apart.
#include <algorithm>

#include "generated/handlers.h"
#include "worker/conversation/call.h"
#include "worker/handlers/devices_apart.h"

namespace gpupool::worker {
namespace {

struct Rows {
  std::uint64_t address, pitch, slice_pitch, width, height, depth;

  /// Whether the sizes describe a block that can exist: no overlap of rows, no overflow.
  [[nodiscard]] bool sane() const {
    constexpr std::uint64_t limit = std::uint64_t{1} << 44;
    if (width == 0 || height == 0 || depth == 0 || width > pitch || pitch > limit || height > limit / pitch)
      return false;
    const std::uint64_t plane = pitch * height;
    if (depth > 1 && slice_pitch < plane) return false;
    return slice_pitch <= limit && depth <= limit / std::max(plane, slice_pitch);
  }
  [[nodiscard]] std::uint64_t packed_size() const { return width * height * depth; }
};

/// Calls `part(device address, packed offset, width, rows)` for pieces that fit a staging chunk.
template <class F>
CUresult each_part(const Rows& rows, F part) {
  const std::uint64_t wide = std::min<std::uint64_t>(rows.width, Staging::chunk_bytes);
  const std::uint64_t tall = std::max<std::uint64_t>(1, Staging::chunk_bytes / rows.width);
  for (std::uint64_t z = 0; z < rows.depth; ++z) {
    for (std::uint64_t y = 0; y < rows.height; y += tall) {
      const std::uint64_t count = std::min(tall, rows.height - y);
      for (std::uint64_t x = 0; x < rows.width; x += wide) {
        const CUdeviceptr at = rows.address + z * rows.slice_pitch + y * rows.pitch + x;
        const CUresult result = part(at, std::min(wide, rows.width - x), count);
        if (result != CUDA_SUCCESS) return result;
      }
    }
  }
  return CUDA_SUCCESS;
}

/// In the stream itself: the legacy stream would wait for others, and end their captures.
CUresult copy_part(Call& x, const std::byte* host, CUdeviceptr device, std::uint64_t pitch,
                   std::uint64_t width, std::uint64_t rows, CUstream stream) {
  CUDA_MEMCPY2D copy{};
  copy.WidthInBytes = width;
  copy.Height = rows;
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = width;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = pitch;
  const CUresult given = x.api.cuMemcpy2DAsync_v2_(&copy, stream);
  return given == CUDA_SUCCESS ? x.api.cuStreamSynchronize_(stream) : given;
}

/// Rows from device memory to device memory, which may be another device's.
CUresult copy_plane(Call& x, CUDA_MEMCPY3D_PEER& between, CUstream stream) {
  if (const auto devices = devices_apart(x, between.dstDevice, between.srcDevice)) {
    between.dstContext = devices->to;
    between.srcContext = devices->from;
    return x.api.cuMemcpy3DPeerAsync_(&between, stream);
  }
  CUDA_MEMCPY2D copy{};
  copy.WidthInBytes = between.WidthInBytes;
  copy.Height = between.Height;
  copy.srcMemoryType = between.srcMemoryType;
  copy.srcDevice = between.srcDevice;
  copy.srcPitch = between.srcPitch;
  copy.dstMemoryType = between.dstMemoryType;
  copy.dstDevice = between.dstDevice;
  copy.dstPitch = between.dstPitch;
  return x.api.cuMemcpy2DAsync_v2_(&copy, stream);
}

}  // namespace

CUresult run_CopyRowsFromHost(Call& x, const messages::CopyRowsFromHost& m, replies::CopyRowsFromHost&) {
  const Rows rows{m.address, m.pitch, m.slice_pitch, m.width, m.height, m.depth};
  CUstream stream = nullptr;
  if (!x.handles.find(wire::Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!rows.sane() || rows.packed_size() != x.payload_left()) return CUDA_ERROR_INVALID_VALUE;
  x.waits();
  if (const CUresult bad = x.api.cuStreamSynchronize_(stream); bad != CUDA_SUCCESS) return bad;
  return each_part(rows, [&](CUdeviceptr at, std::uint64_t width, std::uint64_t count) {
    std::byte* chunk = nullptr;
    if (const CUresult bad = x.session.staging().chunk(0, chunk); bad != CUDA_SUCCESS) return bad;
    if (!x.take_payload(chunk, width * count)) return CUDA_ERROR_INVALID_VALUE;
    return copy_part(x, chunk, at, m.pitch, width, count, stream);
  });
}

CUresult run_CopyRowsToHost(Call& x, const messages::CopyRowsToHost& m, replies::CopyRowsToHost&) {
  const Rows rows{m.address, m.pitch, m.slice_pitch, m.width, m.height, m.depth};
  CUstream stream = nullptr;
  if (!x.handles.find(wire::Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!rows.sane()) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t span =
      (rows.depth - 1) * rows.slice_pitch + (rows.height - 1) * rows.pitch + rows.width;
  if (!x.equipment.readable(rows.address, span)) return CUDA_ERROR_INVALID_VALUE;
  x.waits();
  x.touches_memory();
  Wait wait;
  wait.uses = {stream, x.current(), x.equipment.device_memory()};
  wait.ready = [&api = x.api, stream] { return api.cuStreamQuery_(stream) != CUDA_ERROR_NOT_READY; };
  wait.finish = [&api = x.api, &from = x.conversation.copy_out(), context = x.current(), stream,
                 rows](Answer& answer) {
    if (const CUresult bad = api.cuStreamSynchronize_(stream); bad != CUDA_SUCCESS) return bad;
    return answer_with_block(
        from, context, {rows.address, rows.width, rows.pitch, rows.height, rows.slice_pitch, rows.depth},
        answer);
  };
  x.leave(std::move(wait));
  return CUDA_SUCCESS;
}

CUresult run_CopyRowsOnDevice(Call& x, const messages::CopyRowsOnDevice& m, replies::CopyRowsOnDevice&) {
  const Rows to{m.destination, m.destination_pitch, m.destination_slice, m.width, m.height, m.depth};
  const Rows from{m.source, m.source_pitch, m.source_slice, m.width, m.height, m.depth};
  CUstream stream = nullptr;
  if (!x.handles.find(wire::Kind::stream, m.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!to.sane() || !from.sane() || m.depth > 65536) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = x.submits(stream); bad != CUDA_SUCCESS) return bad;
  for (std::uint64_t z = 0; z < m.depth; ++z) {
    CUDA_MEMCPY3D_PEER copy{};
    copy.WidthInBytes = m.width;
    copy.Height = m.height;
    copy.Depth = 1;
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = m.source + z * m.source_slice;
    copy.srcPitch = m.source_pitch;
    copy.dstDevice = m.destination + z * m.destination_slice;
    copy.dstPitch = m.destination_pitch;
    if (const CUresult bad = copy_plane(x, copy, stream); bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker
