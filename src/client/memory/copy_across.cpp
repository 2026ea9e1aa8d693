#include "client/memory/copy_across.h"

#include <algorithm>
#include <vector>

#include "client/call/call.h"
#include "client/call/capture.h"
#include "client/link/payload_sinks.h"

namespace gpupool::client {
namespace {

/// What of a copy is in this process at once.
constexpr std::size_t staged_bytes = 8 << 20;

CUresult wait_for(CUstream stream) {
  bool capturing = false;
  if (const CUresult bad = is_capturing(stream, capturing); bad != CUDA_SUCCESS) return bad;
  if (capturing) {
    return refuse_mixed("a copy between nodes", "in a capture: a graph is of one node");
  }
  return cuStreamSynchronize(stream);
}

/// The context in which memory is reached: any of its device would do.
std::uint64_t context_of_memory(std::uint64_t address) {
  const int device = device_of_address(address);
  if (device >= 0) return primary_context(device);
  const auto worker = worker_of_address(address);
  return context_on(runtime().worker(worker.value_or(0)));
}

class Staging {
 public:
  Staging(std::uint64_t to, std::uint64_t from)
      : to_context_(context_of_memory(to)), from_context_(context_of_memory(from)) {}

  /// Reads a block of the source and gives it to the destination's node.
  CUresult move(const Block& to, const Block& from, const Extent& extent) {
    const std::size_t size = extent.width * extent.height;
    bytes_.resize(size);
    messages::CopyRowsToHost read;
    fill(read, from, extent);
    replies::CopyRowsToHost reply;
    std::vector<std::byte> fields;
    IntoMemory sink(bytes_.data(), size);
    if (const CUresult bad = ask(read, reply, from_context_, fields, {}, &sink); bad != CUDA_SUCCESS)
      return bad;
    runtime().counters.received(size);
    messages::CopyRowsFromHost write;
    fill(write, to, extent);
    const iovec part{bytes_.data(), size};
    runtime().counters.sent(size);
    return post(write, to_context_, {&part, 1, size});
  }
  /// Until all that was given is in place.
  CUresult finish() {
    messages::SynchronizeContext m;
    m.context = to_context_;
    replies::SynchronizeContext reply;
    std::vector<std::byte> fields;
    return ask(m, reply, to_context_, fields);
  }

 private:
  template <class M>
  static void fill(M& m, const Block& block, const Extent& extent) {
    m.address = block.address;
    m.pitch = std::max(block.pitch, extent.width);
    m.slice_pitch = m.pitch * extent.height;
    m.width = extent.width;
    m.height = extent.height;
    m.depth = 1;
    m.stream = 0;
  }

  std::uint64_t to_context_, from_context_;
  std::vector<std::byte> bytes_;
};

/// Rows of one plane, in pieces that fit.
CUresult move_plane(Staging& staging, const Block& to, const Block& from, const Extent& extent) {
  const std::uint64_t width = std::min<std::uint64_t>(extent.width, staged_bytes);
  const std::uint64_t rows = std::max<std::uint64_t>(staged_bytes / width, 1);
  for (std::uint64_t y = 0; y < extent.height; y += rows) {
    for (std::uint64_t x = 0; x < extent.width; x += width) {
      const Extent piece{std::min(width, extent.width - x), std::min(rows, extent.height - y), 1};
      const Block into{to.address + y * to.pitch + x, to.pitch, 0};
      const Block out_of{from.address + y * from.pitch + x, from.pitch, 0};
      if (const CUresult bad = staging.move(into, out_of, piece); bad != CUDA_SUCCESS) return bad;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool are_on_two_nodes(std::uint64_t to, std::uint64_t from) {
  const auto one = worker_of_address(to), other = worker_of_address(from);
  return one && other && *one != *other;
}

CUresult leave_stream_of_other_node(std::uint64_t address, CUstream& stream, bool& asynchronous) {
  const auto worker = worker_of_address(address);
  if (!worker || *worker == worker_of_stream(stream).index) return CUDA_SUCCESS;
  if (const CUresult bad = wait_for(stream); bad != CUDA_SUCCESS) return bad;
  stream = nullptr;
  asynchronous = false;
  return CUDA_SUCCESS;
}

CUresult copy_across(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream) {
  return copy_rows_across({to, size, size}, {from, size, size}, {size, 1, 1}, stream);
}

CUresult copy_rows_across(const Block& to, const Block& from, const Extent& extent, CUstream stream) try {
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = wait_for(stream); bad != CUDA_SUCCESS) return bad;
  Staging staging(to.address, from.address);
  for (std::uint64_t z = 0; z < extent.depth; ++z) {
    const Block into{to.address + z * to.slice_pitch, to.pitch, 0};
    const Block out_of{from.address + z * from.slice_pitch, from.pitch, 0};
    if (const CUresult bad = move_plane(staging, into, out_of, extent); bad != CUDA_SUCCESS) return bad;
  }
  return staging.finish();
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace gpupool::client
