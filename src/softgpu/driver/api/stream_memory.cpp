// Memory operations in streams: write a value, wait for a value.
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/driver/memory/batch_operation.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

CUresult batch(CUstream handle, std::span<const CUstreamBatchMemOpParams> entries, unsigned flags) {
  return entry([&] {
    require(flags == 0);
    const auto stream = resolve_stream(handle);
    issue(stream, make_batch(stream->context().shared_from_this(), entries));
  });
}

CUresult wait_for(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, cuuint64_t value,
                  unsigned flags) {
  CUstreamBatchMemOpParams entry{};
  entry.waitValue.operation = type;
  entry.waitValue.address = address;
  entry.waitValue.value64 = value;
  entry.waitValue.flags = flags;
  return batch(stream, {&entry, 1}, 0);
}

CUresult write(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, cuuint64_t value,
               unsigned flags) {
  CUstreamBatchMemOpParams entry{};
  entry.writeValue.operation = type;
  entry.writeValue.address = address;
  entry.writeValue.value64 = value;
  entry.writeValue.flags = flags;
  return batch(stream, {&entry, 1}, 0);
}

}  // namespace

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return wait_for(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return write(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return wait_for(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return write(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                            unsigned int flags) {
  return batch(stream, {paramArray, count}, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return wait_for(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return write(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return wait_for(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return write(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                               unsigned int flags) {
  return batch(stream, {paramArray, count}, flags);
}
