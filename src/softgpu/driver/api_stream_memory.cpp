// Memory operations in streams: write a value, wait for a value.
#include <chrono>
#include <thread>

#include "softgpu/driver/context.h"
#include "softgpu/driver/copy.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/operation.h"
#include "softgpu/driver/stream_selection.h"

using namespace softgpu::driver;

namespace {

template <class Word>
bool is_reached(Word now, Word value, unsigned condition) {
  using Signed = std::make_signed_t<Word>;
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<Signed>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return static_cast<Word>(~(now | value)) != 0;
  }
}

template <class Word>
std::function<void()> waiting(std::shared_ptr<Stream> stream, CUdeviceptr address, Word value,
                              unsigned flags) {
  require(address % sizeof(Word) == 0);
  require_device_range(address, sizeof(Word));
  const unsigned condition = flags & 3U;
  return [stream, address, value, condition] {
    auto* const word = reinterpret_cast<Word*>(address);
    // Whoever writes the value is elsewhere: another stream, or the program; so this polls, ever more slowly.
    std::chrono::microseconds pause(1);
    while (!is_reached(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, condition)) {
      if (stream->context().fault() != CUDA_SUCCESS) return;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(500));
    }
  };
}

template <class Word>
std::function<void()> writing(CUdeviceptr address, Word value) {
  require(address % sizeof(Word) == 0);
  require_device_range(address, sizeof(Word));
  return [address, value] { __atomic_store_n(reinterpret_cast<Word*>(address), value, __ATOMIC_RELEASE); };
}

CUresult issue_one(CUstream handle,
                   const std::function<std::function<void()>(const std::shared_ptr<Stream>&)>& make) {
  return entry([&] {
    const auto stream = resolve_stream(handle);
    issue(stream, {CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, std::monostate{}, make(stream)});
  });
}

std::function<void()> batch_entry(const std::shared_ptr<Stream>& stream,
                                  const CUstreamBatchMemOpParams& entry) {
  switch (entry.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return waiting<cuuint32_t>(stream, entry.waitValue.address, entry.waitValue.value,
                                 entry.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return waiting<cuuint64_t>(stream, entry.waitValue.address, entry.waitValue.value64,
                                 entry.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return writing<cuuint32_t>(entry.writeValue.address, entry.writeValue.value);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return writing<cuuint64_t>(entry.writeValue.address, entry.writeValue.value64);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return [] { __atomic_thread_fence(__ATOMIC_SEQ_CST); };
    default:
      fail(CUDA_ERROR_NOT_SUPPORTED);
  }
}

CUresult batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams* entries, unsigned flags) {
  return issue_one(handle, [&](const std::shared_ptr<Stream>& stream) -> std::function<void()> {
    require(entries != nullptr && count > 0 && count <= 256 && flags == 0);
    std::vector<std::function<void()>> steps;
    for (unsigned i = 0; i < count; ++i) steps.push_back(batch_entry(stream, entries[i]));
    return [steps = std::move(steps)] {
      for (const auto& step : steps) step();
    };
  });
}

}  // namespace

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return issue_one(stream, [&](const auto& in) { return waiting<cuuint32_t>(in, addr, value, flags); });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int) {
  return issue_one(stream, [&](const auto&) { return writing<cuuint32_t>(addr, value); });
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return issue_one(stream, [&](const auto& in) { return waiting<cuuint64_t>(in, addr, value, flags); });
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int) {
  return issue_one(stream, [&](const auto&) { return writing<cuuint64_t>(addr, value); });
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                            unsigned int flags) {
  return batch(stream, count, paramArray, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return issue_one(stream, [&](const auto& in) { return waiting<cuuint32_t>(in, addr, value, flags); });
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int) {
  return issue_one(stream, [&](const auto&) { return writing<cuuint32_t>(addr, value); });
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return issue_one(stream, [&](const auto& in) { return waiting<cuuint64_t>(in, addr, value, flags); });
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int) {
  return issue_one(stream, [&](const auto&) { return writing<cuuint64_t>(addr, value); });
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                               unsigned int flags) {
  return batch(stream, count, paramArray, flags);
}
