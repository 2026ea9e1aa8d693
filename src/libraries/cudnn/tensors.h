// Descriptors as the tensors of operations.
#pragma once

#include <cstddef>
#include <span>

#include "libraries/cudnn/descriptors.h"

namespace gpupool::cudnn {

/// Strides without gaps. False: too many elements.
bool packed_strides(int format, std::span<const int> sizes, std::int64_t* strides);

/// Types without counterpart in operations must have been refused before.
Tensor tensor_of(const TensorDescriptor& descriptor, const void* address);
Tensor tensor_of(const FilterDescriptor& descriptor, const void* address);

/// A value of the type in the program's memory; none: of a type that is not carried.
std::optional<double> number_of(const void* value, Element type);

/// A factor in the program's memory: cuDNN has a float for each type but double.
double scalar_of(const void* value, Element type);

inline std::size_t bytes_of_data_type(int type) {
  switch (type) {
    case 10:  // 64 bits
      return 8;
    case 19:
      return 4;
    case 20:
      return 8;
    case 21:
      return 16;
    default:
      return element_of(type) ? operations::bytes_of(*element_of(type)) : 1;
  }
}

/// Types of activations, gradients and filters: what deep learning computes with.
inline bool is_real(Element type) {
  return type == Element::f32 || type == Element::f64 || type == Element::f16 || type == Element::bf16;
}

}  // namespace gpupool::cudnn
