// The CTC loss: labels in host memory go to the work space before the operation reads them.
#include "libraries/operations/ctc_loss.h"

#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::CtcLoss;
using gpupool::operations::Impossible;

struct CtcLossDescriptor : Marked<0x6e74000d> {
  int compute_type = 0;
  int normalization = 0;  // cudnnLossNormalizationMode_t: 1 is softmax
  int gradient_mode = 0;  // as it was given: cudnnNanPropagation_t, or (`by_mode`) cudnnCTCGradMode_t
  int longest = 0;        // label; 0: not set
  bool by_mode = false;
};

/// Longer labels are refused by the functions of before their length was set.
constexpr int longest_label = 255;

struct CtcSettings {
  int compute_type, normalization, gradient_mode, longest;
  bool by_mode;
};
int keep_settings(void* descriptor, const CtcSettings& settings) {
  CtcLossDescriptor* const found = find<CtcLossDescriptor>(descriptor);
  const auto is_flag = [](int value) { return value == 0 || value == 1; };
  if (found == nullptr || !is_flag(settings.normalization) || !is_flag(settings.gradient_mode) ||
      settings.longest < 0 || settings.longest > CtcLoss::most_labels || !is_data_type(settings.compute_type))
    return bad_param;
  if (settings.compute_type != 0) return not_supported_data_type;
  found->compute_type = settings.compute_type;
  found->normalization = settings.normalization;
  found->gradient_mode = settings.gradient_mode;
  found->longest = settings.longest;
  found->by_mode = settings.by_mode;
  return success;
}

int tell_settings(void* descriptor, int* compute_type, int* normalization, int* gradient_mode, int* longest) {
  const CtcLossDescriptor* const found = find<CtcLossDescriptor>(descriptor);
  if (found == nullptr) return bad_param;
  put(compute_type, found->compute_type);
  put(normalization, found->normalization);
  put(gradient_mode, found->gradient_mode);
  put(longest, found->longest);
  return success;
}

/// What both calls are given.
struct CtcCall {
  const void *probabilities_descriptor, *probabilities, *gradient_descriptor;
  void *losses, *gradient;
  int algorithm;
  const void* descriptor;
};

/// The operation without labels and lengths. Work space that is asked for has no addresses yet.
int operation_of(const CtcCall& call, bool executed, CtcLoss& operation) {
  const auto* const descriptor = find<CtcLossDescriptor>(call.descriptor);
  const auto* const probabilities = find<TensorDescriptor>(call.probabilities_descriptor);
  const auto* const gradient = find<TensorDescriptor>(call.gradient_descriptor);
  if (descriptor == nullptr || probabilities == nullptr || call.algorithm < 0 || call.algorithm > 1)
    return bad_param;
  if (probabilities->dims != 3 || (call.gradient_descriptor != nullptr && gradient == nullptr))
    return bad_param;
  operation.probabilities = tensor_of(*probabilities, call.probabilities);
  if (gradient != nullptr) {
    if (gradient->dims != 3 || !std::equal(gradient->sizes, gradient->sizes + 3, probabilities->sizes) ||
        gradient->data_type != probabilities->data_type)
      return bad_param;
    operation.gradient = tensor_of(*gradient, call.gradient);
  } else if (call.gradient != nullptr) {
    return bad_param;
  }
  if (probabilities->data_type != 0) return not_supported_data_type;
  operation.softmax = descriptor->normalization == 1;
  operation.impossible = descriptor->gradient_mode == 0 ? Impossible::zeros
                         : descriptor->by_mode          ? Impossible::not_written
                                                        : Impossible::no_numbers;
  if (executed) {
    if (call.probabilities == nullptr || call.losses == nullptr) return bad_param;
    operation.losses = reinterpret_cast<std::uintptr_t>(call.losses);
  }
  return operation.sound() ? success : not_supported_shape;
}

struct HostLabels {
  const int *labels, *label_lengths, *step_lengths;
};

/// Labels and lengths as they lie in the work space. None: some cannot be right.
std::optional<std::vector<int>> packed(const CtcLoss& operation, const HostLabels& host) {
  if (host.labels == nullptr || host.label_lengths == nullptr || host.step_lengths == nullptr)
    return std::nullopt;
  const auto images = static_cast<std::size_t>(operation.probabilities.sizes[1]);
  const std::span lengths(host.label_lengths, images), steps(host.step_lengths, images);
  std::vector<int> all(lengths.begin(), lengths.end());
  all.insert(all.end(), steps.begin(), steps.end());
  std::size_t count = 0;
  for (std::size_t i = 0; i < images; ++i) {
    if (lengths[i] < 0 || lengths[i] > longest_label || steps[i] < 0 ||
        steps[i] > operation.probabilities.sizes[0])
      return std::nullopt;
    count += static_cast<std::size_t>(lengths[i]);
  }
  for (const int label : std::span(host.labels, count)) {
    if (label < 0 || label >= operation.probabilities.sizes[2]) return std::nullopt;
    all.push_back(label);
  }
  return all;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnCreateCTCLossDescriptor(void** descriptor) {
  return create<CtcLossDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroyCTCLossDescriptor(void* descriptor) {
  return destroy<CtcLossDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetCTCLossDescriptor(void* descriptor, int compute_type) {
  return keep_settings(descriptor, {compute_type, 0, 0, 0, false});
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetCTCLossDescriptorEx(void* descriptor, int compute_type, int normalization,
                                                       int nan) {
  return keep_settings(descriptor, {compute_type, normalization, nan, 0, false});
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetCTCLossDescriptor_v8(void* descriptor, int compute_type, int normalization,
                                                        int nan, int longest) {
  return keep_settings(descriptor, {compute_type, normalization, nan, longest, false});
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetCTCLossDescriptor_v9(void* descriptor, int compute_type, int normalization,
                                                        int mode, int longest) {
  return keep_settings(descriptor, {compute_type, normalization, mode, longest, true});
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetCTCLossDescriptor(void* descriptor, int* compute_type) {
  return tell_settings(descriptor, compute_type, nullptr, nullptr, nullptr);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetCTCLossDescriptorEx(void* descriptor, int* compute_type,
                                                       int* normalization, int* nan) {
  return tell_settings(descriptor, compute_type, normalization, nan, nullptr);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetCTCLossDescriptor_v8(void* descriptor, int* compute_type,
                                                        int* normalization, int* nan, int* longest) {
  return tell_settings(descriptor, compute_type, normalization, nan, longest);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetCTCLossDescriptor_v9(void* descriptor, int* compute_type,
                                                        int* normalization, int* mode, int* longest) {
  return tell_settings(descriptor, compute_type, normalization, mode, longest);
}

GPUPOOL_LIBRARY_EXPORT int cudnnGetCTCLossWorkspaceSize(void* handle, const void* probabilities,
                                                        const void* gradient, const int* labels,
                                                        const int* label_lengths, const int* step_lengths,
                                                        int algorithm, void* descriptor, std::size_t* bytes) {
  return guarded([&]() -> int {
    CtcLoss operation;
    if (find_handle(handle) == nullptr || bytes == nullptr) return bad_param;
    if (const int bad = operation_of(
            {probabilities, nullptr, gradient, nullptr, nullptr, algorithm, descriptor}, false, operation);
        bad != success)
      return bad;
    const auto all = packed(operation, {labels, label_lengths, step_lengths});
    if (!all) return bad_param;
    *bytes = all->size() * sizeof(int);
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetCTCLossWorkspaceSize_v8(void* handle, int algorithm, void* descriptor,
                                                           const void* probabilities, const void* gradient,
                                                           std::size_t* bytes) {
  return guarded([&]() -> int {
    CtcLoss operation;
    if (find_handle(handle) == nullptr || bytes == nullptr) return bad_param;
    *bytes = 0;
    return operation_of({probabilities, nullptr, gradient, nullptr, nullptr, algorithm, descriptor}, false,
                        operation);
  });
}

GPUPOOL_LIBRARY_EXPORT int cudnnCTCLoss(void* handle, const void* probabilities_descriptor,
                                        const void* probabilities, const int* labels,
                                        const int* label_lengths, const int* step_lengths, void* losses,
                                        const void* gradient_descriptor, void* gradient, int algorithm,
                                        void* descriptor, void* workspace, std::size_t workspace_bytes) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    CtcLoss operation;
    if (found == nullptr) return bad_param;
    if (const int bad = operation_of({probabilities_descriptor, probabilities, gradient_descriptor, losses,
                                      gradient, algorithm, descriptor},
                                     true, operation);
        bad != success)
      return bad;
    const auto all = packed(operation, {labels, label_lengths, step_lengths});
    if (!all || workspace == nullptr || workspace_bytes < all->size() * sizeof(int)) return bad_param;
    const auto address = reinterpret_cast<std::uintptr_t>(workspace);
    const auto images = static_cast<std::uint64_t>(operation.probabilities.sizes[1]);
    operation.label_lengths = address;
    operation.step_lengths = address + images * sizeof(int);
    operation.labels = address + 2 * images * sizeof(int);
    const gpupool::libraries::Driver* driver = nullptr;
    if (const CUresult bad = gpupool::libraries::enter(driver); bad != CUDA_SUCCESS) return status_of(bad);
    // Memory of the program's that is not pinned is copied before the call returns.
    if (const CUresult bad =
            driver->cuMemcpyHtoDAsync_v2(address, all->data(), all->size() * sizeof(int), found->stream);
        bad != CUDA_SUCCESS)
      return status_of(bad);
    return post(*found, operation);
  });
}
GPUPOOL_LIBRARY_EXPORT int cudnnCTCLoss_v8(void* handle, int algorithm, void* descriptor,
                                           const void* probabilities_descriptor, const void* probabilities,
                                           const int* labels, const int* label_lengths,
                                           const int* step_lengths, void* losses,
                                           const void* gradient_descriptor, void* gradient, std::size_t,
                                           void*) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    CtcLoss operation;
    if (found == nullptr || labels == nullptr || label_lengths == nullptr || step_lengths == nullptr)
      return bad_param;
    if (const int bad = operation_of({probabilities_descriptor, probabilities, gradient_descriptor, losses,
                                      gradient, algorithm, descriptor},
                                     true, operation);
        bad != success)
      return bad;
    operation.labels = reinterpret_cast<std::uintptr_t>(labels);
    operation.label_lengths = reinterpret_cast<std::uintptr_t>(label_lengths);
    operation.step_lengths = reinterpret_cast<std::uintptr_t>(step_lengths);
    return post(*found, operation);
  });
}
