#include "client/memory/copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/link/payload_sinks.h"
#include "client/memory/arriving_copies.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/copy_across.h"
#include "client/memory/device_memory.h"
#include "client/memory/host_memory.h"
#include "client/memory/host_mirrors.h"
#include "client/process/session_belongings.h"
#include "client/progress/completion.h"

namespace gpupool::client {
namespace {

constexpr std::size_t inline_limit = 16 << 10;

class IntoRows final : public PayloadSink {
 public:
  IntoRows(const Block& to, const Extent& extent) : to_(to), extent_(extent) {}
  bool take(wire::Receiver& receiver, std::uint64_t size) override {
    if (size != extent_.width * extent_.height * extent_.depth) return false;
    for (std::uint64_t z = 0; z < extent_.depth; ++z) {
      for (std::uint64_t y = 0; y < extent_.height; ++y) {
        void* const row = reinterpret_cast<void*>(to_.address + z * to_.slice_pitch + y * to_.pitch);
        if (!receiver.take(row, extent_.width)) return false;
      }
    }
    return true;
  }

 private:
  const Block& to_;
  const Extent& extent_;
};

struct Globals {
  Mutex mutex;
  /// By worker: a program may have the same address on two nodes.
  std::array<std::map<CUdeviceptr, Global>, SessionFile::max_workers> ranges GUARDED_BY(mutex);

  [[nodiscard]] const Global* find(unsigned worker, std::uint64_t address) const REQUIRES(mutex) {
    const auto& mine = ranges[worker];
    const auto next = mine.upper_bound(address);
    if (next == mine.begin()) return nullptr;
    const Global& before = std::prev(next)->second;
    return address - before.address < before.size ? &before : nullptr;
  }
};
Globals& globals() {
  static Globals& all = kept_for_session<Globals>([](Globals& kept) {
    const MutexLock lock(kept.mutex);
    for (auto& ranges : kept.ranges) ranges.clear();
  });
  return all;
}

bool packed(const Block& block, const Extent& extent) {
  return (extent.height == 1 || block.pitch == extent.width) &&
         (extent.depth == 1 || block.slice_pitch == extent.width * extent.height);
}

template <class M>
void fill(M& m, const Block& block, const Extent& extent, CUstream stream) {
  m.address = block.address;
  m.pitch = std::max(block.pitch, extent.width);
  m.slice_pitch = std::max(block.slice_pitch, m.pitch * extent.height);
  m.width = extent.width;
  m.height = extent.height;
  m.depth = extent.depth;
  m.stream = raw(stream);
}

CUresult leave_stream_for_rows(std::uint64_t address, CUstream& stream) {
  bool asynchronous = true;
  return runtime().several() ? leave_stream_of_other_node(address, stream, asynchronous) : CUDA_SUCCESS;
}

/// With coherent memory at one end the worker copies on the device, which waits for nobody. Where the program
/// takes the copy for done, it is waited for.
CUresult copy_coherent(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream,
                       bool asynchronous) {
  const CUresult copied = copy_on_device(to, from, size, stream, asynchronous);
  return copied == CUDA_SUCCESS && !asynchronous ? cuStreamSynchronize(nullptr) : copied;
}

}  // namespace

CUresult copy_from_host(CUdeviceptr to, const void* from, std::size_t size, CUstream stream,
                        bool asynchronous) {
  if (size == 0) return CUDA_SUCCESS;
  if (from == nullptr || to == 0) return CUDA_ERROR_INVALID_VALUE;
  // Coherent memory is the device's too; to another node's it is host memory.
  if (const auto address = reinterpret_cast<CUdeviceptr>(from);
      coherent_memory().find(address) && !(runtime().several() && are_on_two_nodes(to, address))) {
    return copy_coherent(to, address, size, stream, asynchronous);
  }
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (runtime().several()) {
    if (const CUresult bad = leave_stream_of_other_node(to, stream, asynchronous); bad != CUDA_SUCCESS)
      return bad;
  }
  arriving_copies().settle(from, size);  // in its stream the source may be written before it is read
  runtime().counters.sent(size);
  if (size <= inline_limit) {
    messages::CopyFromHostInline m;
    m.address = to;
    m.stream = raw(stream);
    m.asynchronous = asynchronous;
    m.data = {static_cast<const std::byte*>(from), size};
    return post(m, context);
  }
  messages::CopyFromHost m;
  m.address = to;
  m.stream = raw(stream);
  m.asynchronous = asynchronous;
  const iovec part{const_cast<void*>(from), size};
  return post(m, context, {&part, 1, size});
}

CUresult copy_to_host(void* to, CUdeviceptr from, std::size_t size, CUstream stream, bool asynchronous) {
  if (size == 0) return CUDA_SUCCESS;
  if (to == nullptr || from == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const auto address = reinterpret_cast<CUdeviceptr>(to); coherent_memory().find(address))
    return copy_coherent(address, from, size, stream, asynchronous);
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (runtime().several()) {
    if (const CUresult bad = leave_stream_of_other_node(from, stream, asynchronous); bad != CUDA_SUCCESS)
      return bad;
  }
  // As on a local device: the program goes on at once only where the destination is pinned.
  // What the device has a mirror of must have it too before the next work is given.
  if (asynchronous && host_memory().covers(to, size) && !host_mirrors().overlaps(to, size)) {
    return arriving_copies().copy(to, from, size, raw(stream), context);
  }
  messages::CopyToHost m;
  m.address = from;
  m.size = size;
  m.stream = raw(stream);
  m.asynchronous = asynchronous;
  replies::CopyToHost reply;
  std::vector<std::byte> bytes;
  IntoMemory sink(to, size);
  CUresult own = CUDA_ERROR_UNKNOWN;
  std::uint64_t place = 0;
  const CUresult result = ask(m, reply, context, bytes, {}, &sink, &own, &place);
  runtime().counters.waited_for_copy(size);
  // A copy that has arrived says that what came before it in its stream is done.
  if (own == CUDA_SUCCESS) note_stream_done(m.stream, context, place);
  if (result == CUDA_SUCCESS) runtime().counters.received(size);
  return result;
}

CUresult copy_on_device(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream,
                        bool asynchronous) {
  if (size == 0) return CUDA_SUCCESS;
  if (to == 0 || from == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (runtime().several()) {
    if (are_on_two_nodes(to, from)) return copy_across(to, from, size, stream);
    if (const CUresult bad = leave_stream_of_other_node(to, stream, asynchronous); bad != CUDA_SUCCESS)
      return bad;
  }
  if (!asynchronous) {
    messages::cuMemcpyDtoD_v2 m;
    m.dstDevice = to;
    m.srcDevice = from;
    m.ByteCount = size;
    return post(m);
  }
  messages::cuMemcpyDtoDAsync_v2 m;
  m.dstDevice = to;
  m.srcDevice = from;
  m.ByteCount = size;
  m.hStream = raw(stream);
  return post(m);
}

CUresult copy_rows_from_host(const Block& to, const Block& from, const Extent& extent, CUstream stream,
                             bool asynchronous) {
  const std::uint64_t size = extent.width * extent.height * extent.depth;
  if (packed(to, extent) && packed(from, extent)) {
    return copy_from_host(to.address, reinterpret_cast<const void*>(from.address), size, stream,
                          asynchronous);
  }
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = leave_stream_for_rows(to.address, stream); bad != CUDA_SUCCESS) return bad;
  for (std::uint64_t z = 0; z < extent.depth; ++z) {
    arriving_copies().settle(reinterpret_cast<const void*>(from.address + z * from.slice_pitch),
                             (extent.height - 1) * from.pitch + extent.width);
  }
  std::vector<iovec> parts;
  parts.reserve(extent.height * extent.depth);
  for (std::uint64_t z = 0; z < extent.depth; ++z) {
    for (std::uint64_t y = 0; y < extent.height; ++y) {
      parts.push_back(
          {reinterpret_cast<void*>(from.address + z * from.slice_pitch + y * from.pitch), extent.width});
    }
  }
  messages::CopyRowsFromHost m;
  fill(m, to, extent, stream);
  runtime().counters.sent(size);
  return post(m, context, {parts.data(), static_cast<int>(parts.size()), size});
}

CUresult copy_rows_to_host(const Block& to, const Block& from, const Extent& extent, CUstream stream,
                           bool asynchronous) {
  const std::uint64_t size = extent.width * extent.height * extent.depth;
  if (packed(to, extent) && packed(from, extent)) {
    return copy_to_host(reinterpret_cast<void*>(to.address), from.address, size, stream, asynchronous);
  }
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = leave_stream_for_rows(from.address, stream); bad != CUDA_SUCCESS) return bad;
  messages::CopyRowsToHost m;
  fill(m, from, extent, stream);
  replies::CopyRowsToHost reply;
  std::vector<std::byte> bytes;
  IntoRows sink(to, extent);
  const CUresult result = ask(m, reply, context, bytes, {}, &sink);
  if (result == CUDA_SUCCESS) runtime().counters.received(size);
  return result;
}

CUresult copy_rows_on_device(const Block& to, const Block& from, const Extent& extent, CUstream stream) {
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (runtime().several() && are_on_two_nodes(to.address, from.address))
    return copy_rows_across(to, from, extent, stream);
  if (const CUresult bad = leave_stream_for_rows(to.address, stream); bad != CUDA_SUCCESS) return bad;
  messages::CopyRowsOnDevice m;
  m.destination = to.address;
  m.destination_pitch = std::max(to.pitch, extent.width);
  m.destination_slice = std::max(to.slice_pitch, m.destination_pitch * extent.height);
  m.source = from.address;
  m.source_pitch = std::max(from.pitch, extent.width);
  m.source_slice = std::max(from.slice_pitch, m.source_pitch * extent.height);
  m.width = extent.width;
  m.height = extent.height;
  m.depth = extent.depth;
  m.stream = raw(stream);
  return post(m);
}

bool is_device_address(std::uint64_t address) {
  return device_memory().owns(address) || worker_of_global(address, 0);
}

std::optional<unsigned> worker_of_global(std::uint64_t address, unsigned likeliest) {
  Globals& all = globals();
  const MutexLock lock(all.mutex);
  if (all.find(likeliest, address) != nullptr) return likeliest;
  for (unsigned n = 0; n < runtime().workers(); ++n) {
    if (all.find(n, address) != nullptr) return n;
  }
  return std::nullopt;
}

std::optional<Global> global_at(std::uint64_t address) {
  const auto worker = worker_of_global(address, 0);
  if (!worker) return std::nullopt;
  Globals& all = globals();
  const MutexLock lock(all.mutex);
  const Global* const found = all.find(*worker, address);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void remember_global(const Global& global) {
  const unsigned worker = worker_of_device(global.device).index;
  Globals& all = globals();
  const MutexLock lock(all.mutex);
  auto& mine = all.ranges[worker];
  // What lay there before has gone with its graph or context, and would hide this one.
  auto old = mine.lower_bound(global.address);
  if (old != mine.begin() && global.address - std::prev(old)->first < std::prev(old)->second.size) --old;
  while (old != mine.end() && old->first < global.address + global.size) old = mine.erase(old);
  mine[global.address] = global;
}

void forget_global(const Global& global) {
  const unsigned worker = worker_of_device(global.device).index;
  Globals& all = globals();
  const MutexLock lock(all.mutex);
  all.ranges[worker].erase(global.address);
}

}  // namespace gpupool::client
