// Handlers of the messages that map memory and move bytes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "generated/handlers.h"
#include "worker/conversation/call.h"
#include "worker/handlers/devices_apart.h"
#include "worker/handlers/refuse_capture.h"

namespace gpupool::worker {
namespace {

/// What a copy on the null stream means here: the legacy stream, ordered with all blocking streams.
CUresult find_stream(Call& x, std::uint64_t value, CUstream& out) {
  return x.handles.find(wire::Kind::stream, value, out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult copy_from_host_staged(Call& x, std::uint64_t address, CUstream stream) {
  Staging& staging = x.session.staging();
  for (std::size_t n = 0; x.payload_left() > 0; n ^= 1) {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(x.payload_left(), Staging::chunk_bytes));
    std::byte* chunk = nullptr;
    if (const CUresult bad = staging.chunk(n, chunk); bad != CUDA_SUCCESS) return bad;
    if (!x.take_payload(chunk, size)) return CUDA_SUCCESS;  // the connection is gone; the loop sees that next
    CUresult result = x.api.cuMemcpyHtoDAsync_v2_(address, chunk, size, stream);
    if (result == CUDA_SUCCESS) result = staging.used(n, x.current(), stream);
    if (result != CUDA_SUCCESS) return result;
    address += size;
  }
  return CUDA_SUCCESS;
}

}  // namespace

// Waiting for the stream is such a thing that cannot be captured, so the driver gives error and invalid
// capture.
CUresult refuse_capture(Call& x, CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return CUDA_SUCCESS;  // these cannot be captured
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = x.api.cuStreamIsCapturing_(stream, &status);
  if (asked != CUDA_SUCCESS && asked != CUDA_ERROR_NOT_SUPPORTED) return asked;
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_SUCCESS;
  static bool told = false;
  if (!std::exchange(told, true)) {
    std::fputs("a copy from or to host memory cannot be captured into a graph and was refused\n", stderr);
  }
  const CUresult result = x.api.cuStreamSynchronize_(stream);
  return result == CUDA_SUCCESS ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

CUresult run_MapMemory(Call& x, const messages::MapMemory& m, replies::MapMemory&) {
  DeviceArena* const arena = x.equipment.arena(m.device);
  return arena == nullptr ? CUDA_ERROR_INVALID_DEVICE : arena->map(m.address, m.size);
}

CUresult run_UnmapMemory(Call& x, const messages::UnmapMemory& m, replies::UnmapMemory&) {
  DeviceArena* const arena = x.equipment.arena(m.device);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  x.session.in_use.wait_unused(x.equipment.device_memory());
  x.session.synchronize_device(
      arena->device());  // an error of earlier work is reported where that work is waited for
  return arena->unmap(m.address);
}

CUresult run_Barrier(Call& x, const messages::Barrier& m, replies::Barrier&) {
  CUdevice device = 0;
  if (!x.device(m.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  return x.session.synchronize_device(device);
}

CUresult run_CopyFromHostInline(Call& x, const messages::CopyFromHostInline& m,
                                replies::CopyFromHostInline&) {
  CUstream stream = nullptr;
  if (const CUresult bad = find_stream(x, m.stream, stream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = refuse_capture(x, stream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = x.submits(stream); bad != CUDA_SUCCESS) return bad;
  // The bytes live in the receive buffer: the driver must have read them when this returns.
  if (m.asynchronous == 0) return x.api.cuMemcpyHtoD_v2_(m.address, m.data.data(), m.data.size());
  const CUresult result = x.api.cuMemcpyHtoDAsync_v2_(m.address, m.data.data(), m.data.size(), stream);
  return result;  // pageable source: CUDA stages it before returning
}

CUresult run_CopyFromHost(Call& x, const messages::CopyFromHost& m, replies::CopyFromHost&) {
  CUstream stream = nullptr;
  if (const CUresult bad = find_stream(x, m.stream, stream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = refuse_capture(x, stream); bad != CUDA_SUCCESS) return bad;
  if (x.equipment.reachable_by_host(m.address, x.payload_left())) {
    x.waits();
    const CUresult result =
        x.api.cuStreamSynchronize_(stream);  // what came before may still read this memory
    if (result != CUDA_SUCCESS) return result;
    x.touches_memory();
    static_cast<void>(x.take_payload(reinterpret_cast<void*>(m.address), x.payload_left()));
    return CUDA_SUCCESS;
  }
  // The bytes come as fast as the network brings them. Meanwhile the device is free for others, and nobody is
  // charged for it.
  x.waits();
  x.copies(stream);
  const CUresult result = copy_from_host_staged(x, m.address, stream);
  // The program takes it for done: a stream that waits for no other may use it with the next frame.
  return result == CUDA_SUCCESS && m.asynchronous == 0 ? x.api.cuStreamSynchronize_(stream) : result;
}

CUresult run_cuMemcpyDtoD_v2(Call& x, const messages::cuMemcpyDtoD_v2& m, replies::cuMemcpyDtoD_v2&) {
  if (const CUresult bad = x.submits(nullptr); bad != CUDA_SUCCESS) return bad;
  if (const auto devices = devices_apart(x, m.dstDevice, m.srcDevice))
    return x.api.cuMemcpyPeerAsync_(m.dstDevice, devices->to, m.srcDevice, devices->from, m.ByteCount,
                                    nullptr);
  return x.api.cuMemcpyDtoD_v2_(m.dstDevice, m.srcDevice, m.ByteCount);
}

CUresult run_cuMemcpyDtoDAsync_v2(Call& x, const messages::cuMemcpyDtoDAsync_v2& m,
                                  replies::cuMemcpyDtoDAsync_v2&) {
  CUstream stream = nullptr;
  if (const CUresult bad = find_stream(x, m.hStream, stream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = x.submits(stream); bad != CUDA_SUCCESS) return bad;
  if (const auto devices = devices_apart(x, m.dstDevice, m.srcDevice))
    return x.api.cuMemcpyPeerAsync_(m.dstDevice, devices->to, m.srcDevice, devices->from, m.ByteCount,
                                    stream);
  return x.api.cuMemcpyDtoDAsync_v2_(m.dstDevice, m.srcDevice, m.ByteCount, stream);
}

CUresult run_CopyToHost(Call& x, const messages::CopyToHost& m, replies::CopyToHost&) {
  CUstream stream = nullptr;
  if (const CUresult bad = find_stream(x, m.stream, stream); bad != CUDA_SUCCESS) return bad;
  if (m.size == 0 || m.size > DeviceArena::span) return CUDA_ERROR_INVALID_VALUE;
  x.waits();
  x.touches_memory();
  const bool readable = x.equipment.readable(m.address, m.size);
  const bool reachable = x.equipment.reachable_by_host(m.address, m.size);
  Wait wait;
  wait.uses = {stream, x.current(), x.equipment.device_memory()};
  wait.ready = [&api = x.api, stream] { return api.cuStreamQuery_(stream) != CUDA_ERROR_NOT_READY; };
  wait.finish = [&api = x.api, &from = x.conversation.copy_out(), context = x.current(), stream, readable,
                 reachable, address = m.address, size = m.size](Answer& answer) {
    if (const CUresult bad = api.cuStreamSynchronize_(stream); bad != CUDA_SUCCESS) return bad;
    if (!readable) return CUDA_ERROR_INVALID_VALUE;
    if (reachable) {
      answer.payload = {size, reinterpret_cast<const std::byte*>(address), {}};
      return CUDA_SUCCESS;
    }
    return answer_with_block(from, context, {address, size, size, 1, size, 1}, answer);
  };
  x.leave(std::move(wait));
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker
