// Which algorithm a convolution takes: there is one, it is known here, and it needs no workspace.
#include <cstddef>

#include "libraries/cudnn/convolution.h"
#include "libraries/cudnn/handle.h"

using namespace gpupool::cudnn;

namespace {

/// cudnnConvolution…AlgoPerf_t: the three have one layout.
struct Performance {
  int algorithm;
  int status;
  float milliseconds;
  std::size_t memory;
  int determinism;
  int math;
  int reserved[3];
};
static_assert(sizeof(Performance) == 48);

/// The number of the algorithm that the only one is given as, by the direction: the implicit product that
/// needs no workspace and is deterministic.
constexpr int only_forward = 1, only_backward_data = 1, only_backward_filter = 1;

int describe_only(void* handle, const void* input, const void* filter, const void* output,
                  const void* convolution, int algorithm, int requested, int* returned,
                  Performance* results) {
  const TensorDescriptor* const x = find<TensorDescriptor>(input);
  const FilterDescriptor* const w = find<FilterDescriptor>(filter);
  const TensorDescriptor* const y = find<TensorDescriptor>(output);
  const ConvolutionDescriptor* const of = find<ConvolutionDescriptor>(convolution);
  if (find_handle(handle) == nullptr || x == nullptr || w == nullptr || y == nullptr || of == nullptr ||
      returned == nullptr || results == nullptr || requested < 1)
    return bad_param;
  if (const int bad = check_convolution(*x, *w, *y, *of); bad != success) return bad;
  // No time was measured: it is the shortest of those listed in any case.
  results[0] = {algorithm, success, 0.0F, 0, 1, of->math, {}};
  *returned = 1;
  return success;
}

int workspace_of(void* handle, const void* input, const void* filter, const void* output,
                 const void* convolution, int algorithm, int count, std::size_t* bytes) {
  if (bytes == nullptr || algorithm < 0 || algorithm >= count) return bad_param;
  int returned = 0;
  Performance result{};
  if (const int bad = describe_only(handle, input, filter, output, convolution, 0, 1, &returned, &result);
      bad != success)
    return bad;
  *bytes = 0;
  return success;
}

int max_count(void* handle, int* count) {
  if (find_handle(handle) == nullptr || count == nullptr) return bad_param;
  *count = 1;
  return success;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolutionForwardAlgorithmMaxCount(void* handle, int* count) {
  return max_count(handle, count);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolutionBackwardDataAlgorithmMaxCount(void* handle, int* count) {
  return max_count(handle, count);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(void* handle, int* count) {
  return max_count(handle, count);
}

// The order of the descriptors differs between the three.
#define GPUPOOL_ALGORITHMS(name, A, B, input, filter, output, only)                                       \
  GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolution##name##Algorithm_v7(                                     \
      void* handle, const void* A, const void* B, const void* convolution, const void* C, int requested,  \
      int* returned, Performance* results) {                                                              \
    return describe_only(handle, input, filter, output, convolution, only, requested, returned, results); \
  }                                                                                                       \
  GPUPOOL_LIBRARY_EXPORT int cudnnFindConvolution##name##Algorithm(                                       \
      void* handle, const void* A, const void* B, const void* convolution, const void* C, int requested,  \
      int* returned, Performance* results) {                                                              \
    return describe_only(handle, input, filter, output, convolution, only, requested, returned, results); \
  }                                                                                                       \
  GPUPOOL_LIBRARY_EXPORT int cudnnFindConvolution##name##AlgorithmEx(                                     \
      void* handle, const void* A, const void*, const void* B, const void*, const void* convolution,      \
      const void* C, void*, int requested, int* returned, Performance* results, void*, std::size_t) {     \
    return describe_only(handle, input, filter, output, convolution, only, requested, returned, results); \
  }                                                                                                       \
  GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolution##name##WorkspaceSize(                                    \
      void* handle, const void* A, const void* B, const void* convolution, const void* C, int algorithm,  \
      std::size_t* bytes) {                                                                               \
    return workspace_of(handle, input, filter, output, convolution, algorithm, algorithms_##only, bytes); \
  }

namespace {
constexpr int algorithms_only_forward = 8, algorithms_only_backward_data = 6,
              algorithms_only_backward_filter = 7;
}

GPUPOOL_ALGORITHMS(Forward, A, B, A, B, C, only_forward)
GPUPOOL_ALGORITHMS(BackwardData, A, B, C, A, B, only_backward_data)
GPUPOOL_ALGORITHMS(BackwardFilter, A, B, A, C, B, only_backward_filter)
