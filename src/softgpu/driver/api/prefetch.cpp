// Prefetching of managed memory: it is always where it is needed, so only stream order and validity remain.
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation, unsigned int flags,
                               CUstream hStream) {
  return entry([&] {
    require(flags == 0 && count > 0 && AllocationTable::of_process().covers(devPtr, count));
    issue(resolve_stream(hStream), {CU_GRAPH_NODE_TYPE_EMPTY, std::monostate{}, nullptr});
  });
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice, CUstream hStream) {
  return cuMemPrefetchAsync_v2(devPtr, count, CUmemLocation{}, 0, hStream);
}
