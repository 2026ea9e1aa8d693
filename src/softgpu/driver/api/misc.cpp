// Error texts, profiler control.
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/stream/current_context.h"

using namespace softgpu::driver;

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  return entry_any_time([&] {
    require(pStr != nullptr);
    *pStr = error_name(error);
    require(*pStr != nullptr);
  });
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  return entry_any_time([&] {
    require(pStr != nullptr);
    *pStr = error_text(error);
    require(*pStr != nullptr);
  });
}

// There is no profiler to steer; programs bracket their work with these two unconditionally.
CUresult cuProfilerStart(void) {
  return entry([] {});
}

CUresult cuProfilerStop(void) {
  return entry([] {});
}

// Nothing writes to device memory from outside, so there is nothing to flush.
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
  return entry([&] {
    require(target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
    require(scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
            scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
    current_context();
  });
}
