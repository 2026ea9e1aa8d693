// Tensors of device memory as rows of numbers to compute with.
#pragma once

#include <cstdint>

#include "libraries/operations/tensor.h"
#include "softgpu/libraries/memory.h"

namespace softgpu::libraries {

using gpupool::operations::Activated;
using gpupool::operations::Element;
using gpupool::operations::Tensor;

/// Sizes and strides make sense, and all its elements are device memory; else it throws Failure.
void check_tensor(const Tensor& tensor, const Memory& memory, const char* what);

/// Throws Failure unless the two have the same sizes.
void check_same_sizes(const Tensor& one, const Tensor& other, const char* what);

/// `count` elements of the tensor, `stride` apart, from the one at `offset` on, as numbers. N: float or
/// double.
template <class N>
void read_row(const Tensor& tensor, std::int64_t offset, std::int64_t stride, std::int64_t count, N* into);
template <class N>
void write_row(const Tensor& tensor, std::int64_t offset, std::int64_t stride, std::int64_t count,
               const N* from);

template <class N>
void activate(const Activated& how, std::int64_t count, N* values);

}  // namespace softgpu::libraries
