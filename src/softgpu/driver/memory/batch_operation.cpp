#include "softgpu/driver/memory/batch_operation.h"

#include <chrono>
#include <thread>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/memory/copy.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {
namespace {

using Step = std::function<void()>;

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
Word* word_at(CUdeviceptr address) {
  require(address % sizeof(Word) == 0);
  require_device_range(address, sizeof(Word));
  return reinterpret_cast<Word*>(address);
}

template <class Word>
Step waiting(const std::shared_ptr<Context>& context, CUdeviceptr address, Word value, unsigned flags) {
  require((flags & ~7U) == 0 || (flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0);
  return [context, word = word_at<Word>(address), value, condition = flags & 3U] {
    // Whoever writes the value is elsewhere: another stream, or the program; so this polls, ever more slowly.
    std::chrono::microseconds pause(1);
    while (!is_reached(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, condition)) {
      if (context->gives_up()) fail(CUDA_ERROR_LAUNCH_TIMEOUT);
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(500));
    }
  };
}

template <class Word>
Step writing(CUdeviceptr address, Word value) {
  return [word = word_at<Word>(address), value] { __atomic_store_n(word, value, __ATOMIC_RELEASE); };
}

template <class Word>
Step reducing(CUdeviceptr address, Word value, CUstreamAtomicReductionOpType operation) {
  Word* const word = word_at<Word>(address);
  switch (operation) {
    case CU_STREAM_ATOMIC_REDUCTION_OP_OR:
      return [=] { __atomic_fetch_or(word, value, __ATOMIC_ACQ_REL); };
    case CU_STREAM_ATOMIC_REDUCTION_OP_AND:
      return [=] { __atomic_fetch_and(word, value, __ATOMIC_ACQ_REL); };
    case CU_STREAM_ATOMIC_REDUCTION_OP_ADD:
      return [=] { __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL); };
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

Step step_of(const std::shared_ptr<Context>& context, const CUstreamBatchMemOpParams& entry) {
  switch (entry.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return waiting<cuuint32_t>(context, entry.waitValue.address, entry.waitValue.value,
                                 entry.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return waiting<cuuint64_t>(context, entry.waitValue.address, entry.waitValue.value64,
                                 entry.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return writing<cuuint32_t>(entry.writeValue.address, entry.writeValue.value);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return writing<cuuint64_t>(entry.writeValue.address, entry.writeValue.value64);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return [] { __atomic_thread_fence(__ATOMIC_SEQ_CST); };
    case CU_STREAM_MEM_OP_ATOMIC_REDUCTION: {
      const auto& reduction = entry.atomicReduction;
      if (reduction.dataType == CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32)
        return reducing<cuuint32_t>(reduction.address, static_cast<cuuint32_t>(reduction.value),
                                    reduction.reductionOp);
      require(reduction.dataType == CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64);
      return reducing<cuuint64_t>(reduction.address, reduction.value, reduction.reductionOp);
    }
    default:
      fail(CUDA_ERROR_NOT_SUPPORTED);
  }
}

}  // namespace

Operation make_batch(std::shared_ptr<Context> context, std::span<const CUstreamBatchMemOpParams> entries) {
  require(entries.data() != nullptr && !entries.empty() && entries.size() <= 256);
  std::vector<Step> steps;
  for (const CUstreamBatchMemOpParams& entry : entries) steps.push_back(step_of(context, entry));
  return {CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, BatchOperation{{entries.begin(), entries.end()}, 0},
          [steps = std::move(steps)] {
            for (const auto& step : steps) step();
          }};
}

}  // namespace softgpu::driver
