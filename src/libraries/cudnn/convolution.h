// Convolutions: what the calls of before graphs and the nodes of graphs share.
#pragma once

#include "libraries/cudnn/descriptors.h"
#include "libraries/operations/convolution.h"

namespace gpupool::cudnn {

using operations::Convolution;
using operations::ConvolutionDirection;

/// The size of an axis of the output; 0: the filter is larger than what it is applied to.
int convolved_size(int input, int filter, int padding, int stride, int dilation);

/// A tensor of three to five dimensions as one of five: axes of size 1 before those of space.
Tensor of_five(const Tensor& tensor);

/// What the convolution descriptor says. It has at most three dimensions of space.
void describe(Convolution& operation, const ConvolutionDescriptor& descriptor);

/// cudnnActivationMode_t with its coefficients.
operations::Activated activated_of(const ActivationDescriptor& descriptor);

/// Whether the three are right for the descriptor, in all that cuDNN checks: success or the status.
int check_convolution(const TensorDescriptor& input, const FilterDescriptor& filter,
                      const TensorDescriptor& output, const ConvolutionDescriptor& convolution);

}  // namespace gpupool::cudnn
