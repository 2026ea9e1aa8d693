// Tensors of device memory as rows of numbers to compute with.
#pragma once

#include <cstdint>

#include "libraries/operations/tensor.h"
#include "softgpu/libraries/memory.h"

namespace softgpu::libraries {

using gpupool::operations::Activated;
using gpupool::operations::Element;
using gpupool::operations::Tensor;

/// Sizes and strides make sense, and all its elements are device memory; else it throws Failure. Elements may
/// lie in one place (a stride of 0), so there may be more than memory holds, but not without end.
void check_tensor(const Tensor& tensor, const Memory& memory, const char* what);
/// The same of a tensor that is written: memory holds all its elements.
void check_written(const Tensor& tensor, const Memory& memory, const char* what);

/// Throws Failure where a part would hold more numbers of a tensor in host memory than programs have use for.
void check_room(std::int64_t numbers, const char* what);

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
