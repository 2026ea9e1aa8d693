// Convolutions of before graphs: each call is one operation with another direction.
#include "libraries/cudnn/convolution.h"

#include <algorithm>

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

constexpr int most_space = Convolution::space;

/// The arguments that every one of the three calls has.
struct Call {
  const TensorDescriptor* input;
  const FilterDescriptor* filter;
  const TensorDescriptor* output;
  const ConvolutionDescriptor* convolution;
  const void *x, *w, *y;
  const void *alpha, *beta;
};

/// The operation, with what is added being what is there already.
int convolution_of(const Call& call, ConvolutionDirection direction, Convolution& operation) {
  if (call.input == nullptr || call.filter == nullptr || call.output == nullptr ||
      call.convolution == nullptr || call.x == nullptr || call.w == nullptr || call.y == nullptr ||
      call.alpha == nullptr || call.beta == nullptr)
    return bad_param;
  if (const int bad = check_convolution(*call.input, *call.filter, *call.output, *call.convolution);
      bad != success)
    return bad;
  operation.direction = direction;
  operation.input = of_five(tensor_of(*call.input, call.x));
  operation.filter = of_five(tensor_of(*call.filter, call.w));
  operation.output = of_five(tensor_of(*call.output, call.y));
  describe(operation, *call.convolution);
  operation.alpha = scalar_of(call.alpha, operation.input.type);
  operation.beta = scalar_of(call.beta, operation.input.type);
  if (operation.beta != 0) operation.added = operation.target();
  return success;
}

int convolve(void* handle, const Call& call, ConvolutionDirection direction) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    if (found == nullptr) return bad_param;
    Convolution operation;
    if (const int bad = convolution_of(call, direction, operation); bad != success) return bad;
    return post(*found, operation);
  });
}

}  // namespace

namespace gpupool::cudnn {

Tensor of_five(const Tensor& tensor) {
  Tensor made = tensor;
  constexpr int all = 2 + most_space;
  const int missing = all - tensor.dims;
  made.dims = all;
  for (int i = all - 1; i >= 2; --i) {
    const bool there = i - missing >= 2;
    made.sizes[i] = there ? tensor.sizes[i - missing] : 1;
    made.strides[i] = there ? tensor.strides[i - missing] : tensor.strides[0];
  }
  return made;
}

void describe(Convolution& operation, const ConvolutionDescriptor& descriptor) {
  const int missing = most_space - descriptor.dims;
  for (int i = 0; i < descriptor.dims; ++i) {
    operation.padding[missing + i] = descriptor.padding[i];
    operation.stride[missing + i] = descriptor.stride[i];
    operation.dilation[missing + i] = descriptor.dilation[i];
  }
  operation.groups = descriptor.groups;
  operation.flipped = descriptor.mode == 0;
  operation.math = static_cast<std::uint8_t>(descriptor.math);
}

operations::Activated activated_of(const ActivationDescriptor& descriptor) {
  using operations::Activation;
  constexpr Activation modes[] = {Activation::sigmoid,      Activation::relu, Activation::tanh,
                                  Activation::clipped_relu, Activation::elu,  Activation::identity,
                                  Activation::swish};
  operations::Activated made;
  made.activation = modes[std::clamp(descriptor.mode, 0, 6)];
  made.coefficient = made.activation == Activation::swish ? descriptor.swish_beta : descriptor.coefficient;
  made.upper = descriptor.coefficient;
  return made;
}

int check_convolution(const TensorDescriptor& input, const FilterDescriptor& filter,
                      const TensorDescriptor& output, const ConvolutionDescriptor& convolution) {
  if (input.dims != filter.dims || input.dims != output.dims || input.dims != convolution.dims + 2)
    return bad_param;
  if (convolution.dims > most_space) return not_supported;
  if (input.sizes[1] != filter.sizes[1] * convolution.groups || filter.sizes[0] % convolution.groups != 0)
    return bad_param;
  if (output.sizes[0] != input.sizes[0] || output.sizes[1] != filter.sizes[0]) return bad_param;
  for (int i = 0; i < convolution.dims; ++i) {
    const int size = convolved_size(input.sizes[2 + i], filter.sizes[2 + i], convolution.padding[i],
                                    convolution.stride[i], convolution.dilation[i]);
    if (size <= 0 || size != output.sizes[2 + i]) return bad_param;
  }
  if (input.data_type != filter.data_type || input.data_type != output.data_type) return bad_param;
  const auto type = element_of(input.data_type);
  if (!type || !is_real(*type)) return not_supported;
  // Sums have the compute type or, of half ones, more than that.
  const auto sum = element_of(convolution.compute_type);
  const bool known = *type == Element::f64
                         ? sum == Element::f64
                         : sum == Element::f32 || (sum == Element::f16 && *type == Element::f16) ||
                               (sum == Element::bf16 && *type == Element::bf16);
  return known ? success : not_supported;
}

}  // namespace gpupool::cudnn

GPUPOOL_LIBRARY_EXPORT int cudnnConvolutionForward(void* handle, const void* alpha, const void* input,
                                                   const void* x, const void* filter, const void* w,
                                                   const void* convolution, int, void*, std::size_t,
                                                   const void* beta, const void* output, void* y) {
  return convolve(
      handle,
      {find<TensorDescriptor>(input), find<FilterDescriptor>(filter), find<TensorDescriptor>(output),
       find<ConvolutionDescriptor>(convolution), x, w, y, alpha, beta},
      ConvolutionDirection::forward);
}
GPUPOOL_LIBRARY_EXPORT int cudnnConvolutionBackwardData(void* handle, const void* alpha, const void* filter,
                                                        const void* w, const void* output, const void* dy,
                                                        const void* convolution, int, void*, std::size_t,
                                                        const void* beta, const void* input, void* dx) {
  return convolve(
      handle,
      {find<TensorDescriptor>(input), find<FilterDescriptor>(filter), find<TensorDescriptor>(output),
       find<ConvolutionDescriptor>(convolution), dx, w, dy, alpha, beta},
      ConvolutionDirection::backward_data);
}
GPUPOOL_LIBRARY_EXPORT int cudnnConvolutionBackwardFilter(void* handle, const void* alpha, const void* input,
                                                          const void* x, const void* output, const void* dy,
                                                          const void* convolution, int, void*, std::size_t,
                                                          const void* beta, const void* filter, void* dw) {
  return convolve(
      handle,
      {find<TensorDescriptor>(input), find<FilterDescriptor>(filter), find<TensorDescriptor>(output),
       find<ConvolutionDescriptor>(convolution), x, dw, dy, alpha, beta},
      ConvolutionDirection::backward_filter);
}

/// y = activation(alpha1 · convolution + alpha2 · z + bias).
GPUPOOL_LIBRARY_EXPORT int cudnnConvolutionBiasActivationForward(
    void* handle, const void* alpha1, const void* input, const void* x, const void* filter, const void* w,
    const void* convolution, int, void*, std::size_t, const void* alpha2, const void* added, const void* z,
    const void* bias_descriptor, const void* bias, const void* activation_descriptor, const void* output,
    void* y) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const TensorDescriptor* const of_z = find<TensorDescriptor>(added);
    const TensorDescriptor* const of_bias = find<TensorDescriptor>(bias_descriptor);
    const ActivationDescriptor* const activation = find<ActivationDescriptor>(activation_descriptor);
    if (found == nullptr || of_bias == nullptr || activation == nullptr || bias == nullptr) return bad_param;
    const Call call{find<TensorDescriptor>(input),
                    find<FilterDescriptor>(filter),
                    find<TensorDescriptor>(output),
                    find<ConvolutionDescriptor>(convolution),
                    x,
                    w,
                    y,
                    alpha1,
                    alpha2};
    Convolution operation;
    if (const int bad = convolution_of(call, ConvolutionDirection::forward, operation); bad != success)
      return bad;
    // cuDNN fuses these two only.
    if (activation->mode != 1 && activation->mode != 5) return not_supported;
    if (of_bias->dims != call.output->dims || of_bias->sizes[1] != call.output->sizes[1] ||
        of_bias->data_type != call.output->data_type)
      return bad_param;
    for (int i = 0; i < of_bias->dims; ++i) {
      if (i != 1 && of_bias->sizes[i] != 1) return bad_param;
    }
    operation.bias = of_five(tensor_of(*of_bias, bias));
    operation.added = {};
    if (operation.beta != 0) {
      if (of_z == nullptr || z == nullptr || of_z->dims != call.output->dims ||
          !std::equal(of_z->sizes, of_z->sizes + of_z->dims, call.output->sizes) ||
          of_z->data_type != call.output->data_type)
        return bad_param;
      operation.added = of_five(tensor_of(*of_z, z));
    }
    operation.activation = activated_of(*activation);
    return post(*found, operation);
  });
}
