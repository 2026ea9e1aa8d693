// Descriptors of activations, pooling, element-wise operations, reductions and response normalisation.
#include "libraries/cudnn/descriptors.h"

#include <algorithm>
#include <cmath>

using namespace gpupool::cudnn;

namespace {

bool is_nan_option(int nan) {
  return nan == 0 || nan == 1;
}

}  // namespace

#define GPUPOOL_CUDNN_DESCRIPTOR(name, D)                                       \
  GPUPOOL_LIBRARY_EXPORT int cudnnCreate##name##Descriptor(void** descriptor) { \
    return create<D>(descriptor);                                               \
  }                                                                             \
  GPUPOOL_LIBRARY_EXPORT int cudnnDestroy##name##Descriptor(void* descriptor) { \
    return destroy<D>(descriptor);                                              \
  }

GPUPOOL_CUDNN_DESCRIPTOR(Activation, ActivationDescriptor)
GPUPOOL_CUDNN_DESCRIPTOR(Pooling, PoolingDescriptor)
GPUPOOL_CUDNN_DESCRIPTOR(OpTensor, OpTensorDescriptor)
GPUPOOL_CUDNN_DESCRIPTOR(ReduceTensor, ReduceTensorDescriptor)
GPUPOOL_CUDNN_DESCRIPTOR(LRN, LrnDescriptor)

GPUPOOL_LIBRARY_EXPORT int cudnnSetActivationDescriptor(void* descriptor, int mode, int nan,
                                                        double coefficient) {
  ActivationDescriptor* const found = find<ActivationDescriptor>(descriptor);
  if (found == nullptr || mode < 0 || mode > 6 || !is_nan_option(nan)) return bad_param;
  found->mode = mode;
  found->nan = nan;
  found->coefficient = coefficient;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetActivationDescriptor(const void* descriptor, int* mode, int* nan,
                                                        double* coefficient) {
  const ActivationDescriptor* const found = find<ActivationDescriptor>(descriptor);
  if (found == nullptr) return bad_param;
  put(mode, found->mode);
  put(nan, found->nan);
  put(coefficient, found->coefficient);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetActivationDescriptorSwishBeta(void* descriptor, double beta) {
  ActivationDescriptor* const found = find<ActivationDescriptor>(descriptor);
  if (found == nullptr) return bad_param;
  found->swish_beta = beta;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetActivationDescriptorSwishBeta(const void* descriptor, double* beta) {
  const ActivationDescriptor* const found = find<ActivationDescriptor>(descriptor);
  if (found == nullptr || beta == nullptr) return bad_param;
  *beta = found->swish_beta;
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnSetPoolingNdDescriptor(void* descriptor, int mode, int nan, int dims,
                                                       const int* window, const int* padding,
                                                       const int* stride) {
  PoolingDescriptor* const found = find<PoolingDescriptor>(descriptor);
  if (found == nullptr || window == nullptr || padding == nullptr || stride == nullptr || mode < 0 ||
      mode > 3 || !is_nan_option(nan) || dims < 1)
    return bad_param;
  if (dims > max_dims - 2) return not_supported;
  for (int i = 0; i < dims; ++i) {
    if (window[i] <= 0 || stride[i] <= 0 || padding[i] < 0) return bad_param;
  }
  found->mode = mode;
  found->nan = nan;
  found->dims = dims;
  std::copy_n(window, dims, found->window);
  std::copy_n(padding, dims, found->padding);
  std::copy_n(stride, dims, found->stride);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetPooling2dDescriptor(void* descriptor, int mode, int nan, int window_h,
                                                       int window_w, int padding_h, int padding_w,
                                                       int stride_h, int stride_w) {
  const int window[] = {window_h, window_w}, padding[] = {padding_h, padding_w},
            stride[] = {stride_h, stride_w};
  return cudnnSetPoolingNdDescriptor(descriptor, mode, nan, 2, window, padding, stride);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetPoolingNdDescriptor(const void* descriptor, int requested, int* mode,
                                                       int* nan, int* dims, int* window, int* padding,
                                                       int* stride) {
  const PoolingDescriptor* const found = find<PoolingDescriptor>(descriptor);
  if (found == nullptr || requested < 0) return bad_param;
  const int count = std::min(requested, found->dims);
  put(mode, found->mode);
  put(nan, found->nan);
  put(dims, found->dims);
  if (window != nullptr) std::copy_n(found->window, count, window);
  if (padding != nullptr) std::copy_n(found->padding, count, padding);
  if (stride != nullptr) std::copy_n(found->stride, count, stride);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetPooling2dDescriptor(const void* descriptor, int* mode, int* nan,
                                                       int* window_h, int* window_w, int* padding_h,
                                                       int* padding_w, int* stride_h, int* stride_w) {
  const PoolingDescriptor* const found = find<PoolingDescriptor>(descriptor);
  if (found == nullptr || found->dims != 2) return bad_param;
  put(mode, found->mode);
  put(nan, found->nan);
  put(window_h, found->window[0]);
  put(window_w, found->window[1]);
  put(padding_h, found->padding[0]);
  put(padding_w, found->padding[1]);
  put(stride_h, found->stride[0]);
  put(stride_w, found->stride[1]);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetPoolingNdForwardOutputDim(const void* descriptor, const void* input,
                                                             int dims, int* sizes) {
  const PoolingDescriptor* const pooling = find<PoolingDescriptor>(descriptor);
  const TensorDescriptor* const x = find<TensorDescriptor>(input);
  if (pooling == nullptr || x == nullptr || sizes == nullptr || dims != x->dims || dims != pooling->dims + 2)
    return bad_param;
  sizes[0] = x->sizes[0];
  sizes[1] = x->sizes[1];
  for (int i = 0; i < pooling->dims; ++i) {
    const int left = x->sizes[2 + i] + 2 * pooling->padding[i] - pooling->window[i];
    if (left < 0) return bad_param;
    sizes[2 + i] = 1 + left / pooling->stride[i];
  }
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetPooling2dForwardOutputDim(const void* descriptor, const void* input,
                                                             int* n, int* c, int* h, int* w) {
  int sizes[4] = {};
  if (n == nullptr || c == nullptr || h == nullptr || w == nullptr) return bad_param;
  if (const int bad = cudnnGetPoolingNdForwardOutputDim(descriptor, input, 4, sizes); bad != success)
    return bad;
  *n = sizes[0];
  *c = sizes[1];
  *h = sizes[2];
  *w = sizes[3];
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnSetOpTensorDescriptor(void* descriptor, int operation, int compute_type,
                                                      int nan) {
  OpTensorDescriptor* const found = find<OpTensorDescriptor>(descriptor);
  if (found == nullptr || operation < 0 || operation > 5 || !is_data_type(compute_type) ||
      !is_nan_option(nan))
    return bad_param;
  found->operation = operation;
  found->compute_type = compute_type;
  found->nan = nan;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetOpTensorDescriptor(const void* descriptor, int* operation,
                                                      int* compute_type, int* nan) {
  const OpTensorDescriptor* const found = find<OpTensorDescriptor>(descriptor);
  if (found == nullptr) return bad_param;
  put(operation, found->operation);
  put(compute_type, found->compute_type);
  put(nan, found->nan);
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnSetReduceTensorDescriptor(void* descriptor, int operation, int compute_type,
                                                          int nan, int indices, int indices_type) {
  ReduceTensorDescriptor* const found = find<ReduceTensorDescriptor>(descriptor);
  if (found == nullptr || operation < 0 || operation > 8 || !is_data_type(compute_type) ||
      !is_nan_option(nan) || indices < 0 || indices > 1 || indices_type < 0 || indices_type > 3)
    return bad_param;
  found->operation = operation;
  found->compute_type = compute_type;
  found->nan = nan;
  found->indices = indices;
  found->indices_type = indices_type;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetReduceTensorDescriptor(const void* descriptor, int* operation,
                                                          int* compute_type, int* nan, int* indices,
                                                          int* indices_type) {
  const ReduceTensorDescriptor* const found = find<ReduceTensorDescriptor>(descriptor);
  if (found == nullptr) return bad_param;
  put(operation, found->operation);
  put(compute_type, found->compute_type);
  put(nan, found->nan);
  put(indices, found->indices);
  put(indices_type, found->indices_type);
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnSetLRNDescriptor(void* descriptor, unsigned window, double alpha, double beta,
                                                 double k) {
  LrnDescriptor* const found = find<LrnDescriptor>(descriptor);
  constexpr double least_k = 1e-5, least_beta = 0.01;
  if (found == nullptr || window < 1 || window > 16 || k < least_k || beta < least_beta) return bad_param;
  found->window = window;
  found->alpha = alpha;
  found->beta = beta;
  found->k = k;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetLRNDescriptor(const void* descriptor, unsigned* window, double* alpha,
                                                 double* beta, double* k) {
  const LrnDescriptor* const found = find<LrnDescriptor>(descriptor);
  if (found == nullptr) return bad_param;
  put(window, found->window);
  put(alpha, found->alpha);
  put(beta, found->beta);
  put(k, found->k);
  return success;
}
