// Descriptors of convolutions, and the shape of what a convolution makes.
#include <algorithm>

#include "libraries/cudnn/convolution.h"
#include "libraries/cudnn/descriptors.h"

using namespace gpupool::cudnn;

namespace {

constexpr int most_space = 6;  // CUDNN_DIM_MAX without images and channels

template <class T>
int write_convolution(void* descriptor, T ConvolutionDescriptor::* field, T value, bool valid) {
  ConvolutionDescriptor* const found = find<ConvolutionDescriptor>(descriptor);
  if (found == nullptr || !valid) return bad_param;
  found->*field = value;
  return success;
}
template <class T>
int read_convolution(const void* descriptor, T ConvolutionDescriptor::* field, T* into) {
  const ConvolutionDescriptor* const found = find<ConvolutionDescriptor>(descriptor);
  if (found == nullptr || into == nullptr) return bad_param;
  *into = found->*field;
  return success;
}

}  // namespace

namespace gpupool::cudnn {

int convolved_size(int input, int filter, int padding, int stride, int dilation) {
  const std::int64_t reach = static_cast<std::int64_t>(filter - 1) * dilation + 1;
  const std::int64_t left = input + 2 * static_cast<std::int64_t>(padding) - reach;
  return left < 0 ? 0 : static_cast<int>(left / stride + 1);
}

}  // namespace gpupool::cudnn

GPUPOOL_LIBRARY_EXPORT int cudnnCreateConvolutionDescriptor(void** descriptor) {
  return create<ConvolutionDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroyConvolutionDescriptor(void* descriptor) {
  return destroy<ConvolutionDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetConvolutionMathType(void* descriptor, int math) {
  return write_convolution(descriptor, &ConvolutionDescriptor::math, math, math >= 0 && math <= 3);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolutionMathType(const void* descriptor, int* math) {
  return read_convolution(descriptor, &ConvolutionDescriptor::math, math);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetConvolutionGroupCount(void* descriptor, int groups) {
  return write_convolution(descriptor, &ConvolutionDescriptor::groups, groups, groups > 0);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolutionGroupCount(const void* descriptor, int* groups) {
  return read_convolution(descriptor, &ConvolutionDescriptor::groups, groups);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetConvolutionReorderType(void* descriptor, int reorder) {
  return write_convolution(descriptor, &ConvolutionDescriptor::reorder, reorder,
                           reorder == 0 || reorder == 1);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolutionReorderType(const void* descriptor, int* reorder) {
  return read_convolution(descriptor, &ConvolutionDescriptor::reorder, reorder);
}

GPUPOOL_LIBRARY_EXPORT int cudnnSetConvolutionNdDescriptor(void* descriptor, int dims, const int* padding,
                                                           const int* stride, const int* dilation, int mode,
                                                           int compute_type) {
  ConvolutionDescriptor* const found = find<ConvolutionDescriptor>(descriptor);
  if (found == nullptr || padding == nullptr || stride == nullptr || dilation == nullptr || dims < 1 ||
      (mode != 0 && mode != 1) || !is_data_type(compute_type))
    return bad_param;
  if (dims > most_space) return not_supported;
  for (int i = 0; i < dims; ++i) {
    if (padding[i] < 0 || stride[i] <= 0 || dilation[i] <= 0) return bad_param;
  }
  found->dims = dims;
  std::copy_n(padding, dims, found->padding);
  std::copy_n(stride, dims, found->stride);
  std::copy_n(dilation, dims, found->dilation);
  found->mode = mode;
  found->compute_type = compute_type;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetConvolution2dDescriptor(void* descriptor, int pad_h, int pad_w,
                                                           int stride_h, int stride_w, int dilation_h,
                                                           int dilation_w, int mode, int compute_type) {
  const int padding[] = {pad_h, pad_w}, stride[] = {stride_h, stride_w},
            dilation[] = {dilation_h, dilation_w};
  return cudnnSetConvolutionNdDescriptor(descriptor, 2, padding, stride, dilation, mode, compute_type);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolutionNdDescriptor(const void* descriptor, int requested, int* dims,
                                                           int* padding, int* stride, int* dilation,
                                                           int* mode, int* compute_type) {
  const ConvolutionDescriptor* const found = find<ConvolutionDescriptor>(descriptor);
  if (found == nullptr || requested < 0) return bad_param;
  if (requested > most_space) return not_supported;
  const int count = std::min(requested, found->dims);
  put(dims, found->dims);
  if (padding != nullptr) std::copy_n(found->padding, count, padding);
  if (stride != nullptr) std::copy_n(found->stride, count, stride);
  if (dilation != nullptr) std::copy_n(found->dilation, count, dilation);
  put(mode, found->mode);
  put(compute_type, found->compute_type);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolution2dDescriptor(const void* descriptor, int* pad_h, int* pad_w,
                                                           int* stride_h, int* stride_w, int* dilation_h,
                                                           int* dilation_w, int* mode, int* compute_type) {
  const ConvolutionDescriptor* const found = find<ConvolutionDescriptor>(descriptor);
  if (found == nullptr || found->dims != 2) return bad_param;
  put(pad_h, found->padding[0]);
  put(pad_w, found->padding[1]);
  put(stride_h, found->stride[0]);
  put(stride_w, found->stride[1]);
  put(dilation_h, found->dilation[0]);
  put(dilation_w, found->dilation[1]);
  put(mode, found->mode);
  put(compute_type, found->compute_type);
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolutionNdForwardOutputDim(const void* descriptor, const void* input,
                                                                 const void* filter, int dims, int* sizes) {
  const ConvolutionDescriptor* const convolution = find<ConvolutionDescriptor>(descriptor);
  const TensorDescriptor* const x = find<TensorDescriptor>(input);
  const FilterDescriptor* const w = find<FilterDescriptor>(filter);
  if (convolution == nullptr || x == nullptr || w == nullptr || sizes == nullptr) return bad_param;
  if (x->dims != w->dims || x->dims != convolution->dims + 2 || dims != x->dims) return bad_param;
  if (x->sizes[1] != w->sizes[1] * convolution->groups || w->sizes[0] % convolution->groups != 0)
    return bad_param;
  int made[max_dims] = {x->sizes[0], w->sizes[0]};
  for (int i = 0; i < convolution->dims; ++i) {
    made[2 + i] = convolved_size(x->sizes[2 + i], w->sizes[2 + i], convolution->padding[i],
                                 convolution->stride[i], convolution->dilation[i]);
    if (made[2 + i] <= 0) return bad_param;
  }
  std::copy_n(made, dims, sizes);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetConvolution2dForwardOutputDim(const void* descriptor, const void* input,
                                                                 const void* filter, int* n, int* c, int* h,
                                                                 int* w) {
  int sizes[4] = {};
  if (n == nullptr || c == nullptr || h == nullptr || w == nullptr) return bad_param;
  if (const int bad = cudnnGetConvolutionNdForwardOutputDim(descriptor, input, filter, 4, sizes);
      bad != success)
    return bad;
  *n = sizes[0];
  *c = sizes[1];
  *h = sizes[2];
  *w = sizes[3];
  return success;
}
