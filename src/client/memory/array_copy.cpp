#include "client/memory/array_copy.h"

#include <cstring>
#include <optional>
#include <vector>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/memory/arriving_copies.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/copy.h"

namespace gpupool::client {
namespace {

/// Host memory of one side: its rows, in the order in which they travel.
struct HostRows {
  std::uint64_t address, pitch, slice;
  const CUDA_MEMCPY3D& shape;

  template <class F>
  bool each(F use) const {
    for (std::size_t z = 0; z < shape.Depth; ++z) {
      for (std::size_t y = 0; y < shape.Height; ++y) {
        if (!use(reinterpret_cast<void*>(address + z * slice + y * pitch))) return false;
      }
    }
    return true;
  }

  /// What earlier copies bring into the rows comes before the rows are read here, or written.
  void settle() const {
    for (std::size_t z = 0; z < shape.Depth; ++z) {
      arriving_copies().settle(reinterpret_cast<const void*>(address + z * slice),
                               (shape.Height - 1) * pitch + shape.WidthInBytes);
    }
  }
};

class IntoHostRows final : public PayloadSink {
 public:
  explicit IntoHostRows(const HostRows& rows) : rows_(rows) {}
  bool take(wire::Receiver& receiver, std::uint64_t size) override {
    const CUDA_MEMCPY3D& s = rows_.shape;
    return size == s.WidthInBytes * s.Height * s.Depth &&
           rows_.each([&](void* row) { return receiver.take(row, s.WidthInBytes); });
  }

 private:
  const HostRows& rows_;
};

/// What "unified" means is known here, where the host's memory is.
CUmemorytype resolve(CUmemorytype type, CUdeviceptr& address, const void*& host) {
  if (const auto both = reinterpret_cast<CUdeviceptr>(host);
      type == CU_MEMORYTYPE_HOST && coherent_memory().find(both)) {
    address = both;
    return CU_MEMORYTYPE_DEVICE;
  }
  if (type != CU_MEMORYTYPE_UNIFIED) return type;
  if (is_device_address(address)) return CU_MEMORYTYPE_DEVICE;
  host = reinterpret_cast<const void*>(address);
  return CU_MEMORYTYPE_HOST;
}

HostRows rows(const CUDA_MEMCPY3D& shape, const void* host, std::size_t x, std::size_t y, std::size_t z,
              std::size_t pitch, std::size_t height) {
  if (pitch == 0) pitch = shape.WidthInBytes + x;
  const std::size_t slice = pitch * (height != 0 ? height : shape.Height + y);
  return {reinterpret_cast<std::uint64_t>(host) + z * slice + y * pitch + x, pitch, slice, shape};
}

template <class M>
void describe(M& m, CUarray array, std::size_t x, std::size_t y, std::size_t z, const CUDA_MEMCPY3D& shape,
              CUstream stream) {
  m.array = raw(array);
  m.x = x;
  m.y = y;
  m.z = z;
  m.width = shape.WidthInBytes;
  m.height = shape.Height;
  m.depth = shape.Depth;
  m.stream = raw(stream);
}

CUresult from_host(const CUDA_MEMCPY3D& s, const HostRows& source, CUstream stream, std::uint64_t context) {
  source.settle();
  messages::CopyArrayFromHost m;
  describe(m, s.dstArray, s.dstXInBytes, s.dstY, s.dstZ, s, stream);
  std::vector<iovec> parts;
  parts.reserve(s.Height * s.Depth);
  source.each([&](void* row) {
    parts.push_back({row, s.WidthInBytes});
    return true;
  });
  const std::uint64_t size = s.WidthInBytes * s.Height * s.Depth;
  runtime().counters.sent(size);
  return post(m, context, {parts.data(), static_cast<int>(parts.size()), size});
}

CUresult to_host(const CUDA_MEMCPY3D& s, const HostRows& destination, CUstream stream,
                 std::uint64_t context) {
  destination.settle();
  messages::CopyArrayToHost m;
  describe(m, s.srcArray, s.srcXInBytes, s.srcY, s.srcZ, s, stream);
  replies::CopyArrayToHost reply;
  std::vector<std::byte> bytes;
  IntoHostRows sink(destination);
  const CUresult result = ask(m, reply, context, bytes, {}, &sink);
  if (result == CUDA_SUCCESS) runtime().counters.received(s.WidthInBytes * s.Height * s.Depth);
  return result;
}

/// Of several nodes one must have both sides and the stream; `context` becomes one of it.
CUresult find_node_of(const CUDA_MEMCPY3D& s, CUstream stream, std::uint64_t& context) {
  std::optional<unsigned> worker;
  bool mixed = false;
  const auto see = [&](std::optional<unsigned> next) {
    mixed = mixed || (worker && next && *worker != *next);
    if (next) worker = next;
  };
  if (s.srcMemoryType == CU_MEMORYTYPE_ARRAY) see(worker_of_object(wire::Kind::array, raw(s.srcArray)));
  if (s.dstMemoryType == CU_MEMORYTYPE_ARRAY) see(worker_of_object(wire::Kind::array, raw(s.dstArray)));
  if (s.srcMemoryType == CU_MEMORYTYPE_DEVICE) see(worker_of_address(s.srcDevice));
  if (s.dstMemoryType == CU_MEMORYTYPE_DEVICE) see(worker_of_address(s.dstDevice));
  see(worker_of_stream(stream).index);
  if (mixed) return refuse_mixed("a copy of an array", "both sides and the stream are of one node");
  if (worker) context = context_on(runtime().worker(*worker));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_with_arrays(CUDA_MEMCPY3D s, CUstream stream) try {
  const void* destination = s.dstHost;
  s.srcMemoryType = resolve(s.srcMemoryType, s.srcDevice, s.srcHost);
  s.dstMemoryType = resolve(s.dstMemoryType, s.dstDevice, destination);
  for (const auto& [type, array] : {std::pair{s.srcMemoryType, s.srcArray}, {s.dstMemoryType, s.dstArray}}) {
    if (type == CU_MEMORYTYPE_ARRAY && !known(wire::Kind::array, array)) return bad_handle(wire::Kind::array);
  }
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (runtime().several()) {
    if (const CUresult bad = find_node_of(s, stream, context); bad != CUDA_SUCCESS) return bad;
  }
  if (s.srcLOD != 0 || s.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  if (s.WidthInBytes == 0 || s.Height == 0 || s.Depth == 0) return CUDA_SUCCESS;
  constexpr std::size_t most = std::size_t{1} << 24;  // along one axis of an array
  if (s.WidthInBytes > most || s.Height > most || s.Depth > most) return CUDA_ERROR_INVALID_VALUE;
  if (s.srcMemoryType == CU_MEMORYTYPE_HOST) {
    if (s.srcHost == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return from_host(s, rows(s, s.srcHost, s.srcXInBytes, s.srcY, s.srcZ, s.srcPitch, s.srcHeight), stream,
                     context);
  }
  if (s.dstMemoryType == CU_MEMORYTYPE_HOST) {
    if (destination == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return to_host(s, rows(s, destination, s.dstXInBytes, s.dstY, s.dstZ, s.dstPitch, s.dstHeight), stream,
                   context);
  }
  s.srcHost = s.dstHost = s.reserved0 = s.reserved1 = nullptr;
  messages::cuMemcpy3DAsync_v2 m;
  std::memcpy(m.pCopy.data(), &s, sizeof(s));
  m.hStream = raw(stream);
  return post(m, context);
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D& from) {
  CUDA_MEMCPY3D s{};
  s.srcXInBytes = from.srcXInBytes;
  s.srcY = from.srcY;
  s.srcMemoryType = from.srcMemoryType;
  s.srcHost = from.srcHost;
  s.srcDevice = from.srcDevice;
  s.srcArray = from.srcArray;
  s.srcPitch = from.srcPitch;
  s.dstXInBytes = from.dstXInBytes;
  s.dstY = from.dstY;
  s.dstMemoryType = from.dstMemoryType;
  s.dstHost = from.dstHost;
  s.dstDevice = from.dstDevice;
  s.dstArray = from.dstArray;
  s.dstPitch = from.dstPitch;
  s.WidthInBytes = from.WidthInBytes;
  s.Height = from.Height;
  s.Depth = 1;
  return s;
}

CUDA_MEMCPY3D row_of_arrays(CUarray to, CUarray from, std::size_t to_offset, std::size_t from_offset,
                            std::size_t size) {
  CUDA_MEMCPY3D s{};
  s.srcMemoryType = s.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  s.srcArray = from;
  s.srcXInBytes = from_offset;
  s.dstArray = to;
  s.dstXInBytes = to_offset;
  s.WidthInBytes = size;
  s.Height = s.Depth = 1;
  return s;
}

}  // namespace gpupool::client
