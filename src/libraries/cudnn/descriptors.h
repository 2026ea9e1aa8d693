// Descriptors of the interface of before cuDNN's graphs: what is set is kept as it was given.
#pragma once

#include <cstdint>
#include <optional>

#include "libraries/cudnn/status.h"
#include "libraries/operations/tensor.h"

namespace gpupool::cudnn {

using operations::Element;
using operations::Tensor;

inline constexpr int max_dims = operations::max_dims;

/// cudnnDataType_t as a type of operations. None: it has no counterpart there.
inline std::optional<Element> element_of(int data_type) {
  switch (data_type) {
    case 0:
      return Element::f32;
    case 1:
      return Element::f64;
    case 2:
      return Element::f16;
    case 3:
      return Element::i8;
    case 4:
      return Element::i32;
    case 6:
      return Element::u8;
    case 9:
      return Element::bf16;
    case 12:
      return Element::f8_e4m3;
    case 13:
      return Element::f8_e5m2;
    default:
      return std::nullopt;
  }
}
inline bool is_data_type(int type) {
  return type >= 0 && type <= 21;
}

/// cudnnTensorFormat_t.
enum Format : int { nchw = 0, nhwc = 1, nchw_vect_c = 2 };

/// Of each kind of descriptor; a pointer to another kind, or to one that was destroyed, is a wrong argument.
template <std::uint32_t Mark>
struct Marked {
  static constexpr std::uint32_t mark = Mark;
  std::uint32_t alive = Mark;
};

struct TensorDescriptor : Marked<0x6e740001> {
  int data_type = 0, dims = 0;
  int sizes[max_dims] = {}, strides[max_dims] = {};
};
struct FilterDescriptor : Marked<0x6e740002> {
  int data_type = 0, format = nchw, dims = 0;
  int sizes[max_dims] = {};
};
struct ConvolutionDescriptor : Marked<0x6e740003> {
  int dims = 0;  // of space
  int padding[max_dims] = {}, stride[max_dims] = {}, dilation[max_dims] = {};
  int mode = 1, compute_type = 0, groups = 1, math = 0, reorder = 0;
};
struct ActivationDescriptor : Marked<0x6e740004> {
  int mode = 5, nan = 0;
  double coefficient = 0, swish_beta = 1;
};
struct PoolingDescriptor : Marked<0x6e740005> {
  int mode = 0, nan = 0, dims = 0;
  int window[max_dims] = {}, padding[max_dims] = {}, stride[max_dims] = {};
};
struct OpTensorDescriptor : Marked<0x6e740006> {
  int operation = 0, compute_type = 0, nan = 0;
};
struct ReduceTensorDescriptor : Marked<0x6e740007> {
  int operation = 0, compute_type = 0, nan = 0, indices = 0, indices_type = 0;
};
struct DropoutDescriptor : Marked<0x6e740008> {
  float rate = 0;
  void* states = nullptr;
  std::uint64_t seed = 0;
};
struct LrnDescriptor : Marked<0x6e740009> {
  unsigned window = 5;
  double alpha = 1e-4, beta = 0.75, k = 2;
};

/// The descriptor, or null.
template <class D>
D* find(void* descriptor) {
  auto* const found = static_cast<D*>(descriptor);
  return found != nullptr && found->alive == D::mark ? found : nullptr;
}
template <class D>
const D* find(const void* descriptor) {
  return find<D>(const_cast<void*>(descriptor));
}

template <class D>
int create(void** descriptor) {
  return guarded([&]() -> int {
    if (descriptor == nullptr) return bad_param;
    *descriptor = new D;
    return success;
  });
}
template <class D>
int destroy(void* descriptor) {
  D* const found = find<D>(descriptor);
  if (found == nullptr) return success;
  found->alive = 0;
  delete found;
  return success;
}

/// Where the program wants to know it: cuDNN leaves out what it is given no pointer for.
template <class T>
void put(T* into, T value) {
  if (into != nullptr) *into = value;
}

}  // namespace gpupool::cudnn
