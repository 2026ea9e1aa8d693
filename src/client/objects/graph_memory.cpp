#include "client/objects/graph_memory.h"

#include <unordered_set>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/memory/copy.h"
#include "client/memory/device_memory.h"
#include "client/process/session_belongings.h"

namespace gpupool::client {
namespace {

/// Nobody tells when a graph's addresses are given up, so they stay; the driver uses them again for later
/// graphs.
struct GraphMemory {
  Mutex mutex;
  std::unordered_set<CUdeviceptr> addresses GUARDED_BY(mutex);
};
GraphMemory& graph_memory() {
  static GraphMemory& all = kept_for_session<GraphMemory>([](GraphMemory& kept) {
    const MutexLock lock(kept.mutex);
    kept.addresses.clear();
  });
  return all;
}

}  // namespace

void remember_graph_memory(CUdeviceptr address, std::size_t size, int device) {
  remember_global({address, size, device});
  const MutexLock lock(graph_memory().mutex);
  graph_memory().addresses.insert(address);
}

bool is_graph_memory(CUdeviceptr address) {
  if (device_memory().owns(address)) return false;
  const MutexLock lock(graph_memory().mutex);
  return graph_memory().addresses.contains(address);
}

CUresult allocate_in_capture(CUdeviceptr* out, std::size_t size, CUstream stream) {
  messages::CaptureAllocation m;
  m.stream = raw(stream);
  m.size = size;
  replies::CaptureAllocation reply;
  const CUresult result = ask(m, reply);
  if (result != CUDA_SUCCESS) return result;
  remember_graph_memory(reply.address, size, worker_of_stream(stream).first_device);
  *out = reply.address;
  return CUDA_SUCCESS;
}

CUresult free_graph_memory(CUdeviceptr address, CUstream stream) {
  messages::FreeGraphMemory m;
  m.address = address;
  m.stream = raw(stream);
  return post(m);
}

}  // namespace gpupool::client
