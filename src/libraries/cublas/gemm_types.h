// Which types a matrix product has. Of cuBLAS and of cuBLASLt.
#pragma once

#include <optional>

#include "libraries/operations/element.h"

namespace gpupool::cublas {

using operations::Element;

/// What kind of sum a product has, and what its factors are.
struct Sums {
  Element sum, scalar;
  int compute;  // cublasComputeType_t
};

/// cublasComputeType_t with the type of C, as the documentation of cublasGemmEx lists them.
inline std::optional<Sums> sums_of(int compute, Element c) {
  switch (compute) {
    case 64:  // 16F, and pedantic
    case 65:
      return Sums{Element::f32, Element::f16, compute};
    case 68:  // 32F, pedantic, and the faster ones, which the software GPU computes as exactly
    case 69:
    case 74:
    case 75:
    case 77:
    case 78:
      return Sums{Element::f32, operations::is_complex(c) ? Element::c32 : Element::f32, compute};
    case 70:  // 64F, and pedantic
    case 71:
    case 79:
      return Sums{Element::f64, operations::is_complex(c) ? Element::c64 : Element::f64, compute};
    case 72:  // 32I, and pedantic
    case 73:
      return Sums{Element::i32, c == Element::i32 ? Element::i32 : Element::f32, compute};
    default:
      return std::nullopt;
  }
}

/// Whether a cudaDataType is one that operations know.
inline bool known(int type) {
  return type >= 0 && type < 256 && operations::bytes_of(static_cast<Element>(type)) != 0;
}

}  // namespace gpupool::cublas
