// Epilogues of inference and training: which there are, with which types, and how what they use has to lie.
#include "libraries/cublaslt/epilogue.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "libraries/cublas/gemm_types.h"
#include "libraries/cublas/status.h"

namespace gpupool::cublaslt {
namespace {

using cublas::invalid_value;
using cublas::not_supported;
using cublas::success;
using operations::Element;
using operations::Gemm;

/// Whether it is one of cublasLtEpilogue_t.
bool is_epilogue(std::uint32_t epilogue) {
  using namespace operations;
  // A forward pass keeps what the gradient will need, and a gradient needs it.
  constexpr std::uint32_t relu_kept = epilogue_relu | epilogue_auxiliary;
  constexpr std::uint32_t gelu_kept = epilogue_gelu | epilogue_auxiliary;
  constexpr std::uint32_t relu_gradient = epilogue_relu_gradient | epilogue_auxiliary;
  constexpr std::uint32_t gelu_gradient = epilogue_gelu_gradient | epilogue_auxiliary;
  constexpr std::uint32_t all[] = {
      epilogue_none,   epilogue_bias,
      epilogue_relu,   epilogue_relu | epilogue_bias,
      epilogue_gelu,   epilogue_gelu | epilogue_bias,
      relu_kept,       relu_kept | epilogue_bias,
      gelu_kept,       gelu_kept | epilogue_bias,
      relu_gradient,   relu_gradient | epilogue_bias_gradient,
      gelu_gradient,   gelu_gradient | epilogue_bias_gradient,
      epilogue_sums_a, epilogue_sums_b,
  };
  return std::find(std::begin(all), std::end(all), epilogue) != std::end(all);
}

Element type_of_bias(const MatmulDesc& product, Element d) {
  if (product.bias_type >= 0) return static_cast<Element>(product.bias_type);
  if (operations::is_f8(d)) return Element::bf16;
  return d == Element::i8 ? Element::f32 : d;
}

/// Whether products of these matrices can be part of training.
bool fits_training(const Gemm& of) {
  const bool real = !operations::is_complex(of.a.type) && of.a.type != Element::i8;
  // NVIDIA's library adds up nothing beside a product of fp8.
  if (!real || (of.stores_sums() && operations::is_f8(of.a.type))) return false;
  // The auxiliary matrix always has D's columns together.
  return !of.has(operations::epilogue_auxiliary) || !of.d.by_row;
}

/// Whether the columns of the auxiliary matrix have room. NVIDIA's documentation wants those of GELU's
/// arguments to be a multiple of 8 apart. XLA takes the distance of D's columns, whatever it is.
bool has_room(const Gemm& of) {
  const operations::Matrix& auxiliary = of.auxiliary;
  if (auxiliary.leading < of.m) return false;
  return !of.has_mask() || (auxiliary.leading % 128 == 0 && auxiliary.stride % 128 == 0);
}

/// Whether the auxiliary matrix is stored, rather than read.
bool stores_auxiliary(const Gemm& of) {
  const bool is_forward = of.has(operations::epilogue_relu | operations::epilogue_gelu);
  return is_forward && of.has(operations::epilogue_auxiliary);
}

/// GELU's arguments have D's type, beside a narrow D also that of C.
int describe_type_of_arguments(const MatmulDesc& product, Gemm& operation) {
  operation.auxiliary.type = operation.d.type;
  if (product.auxiliary_type < 0) return success;
  const auto type = static_cast<Element>(product.auxiliary_type);
  const bool wider = operations::is_f8(operation.d.type) && type == operation.c.type;
  if (!cublas::known(product.auxiliary_type) || (type != operation.d.type && !wider)) return invalid_value;
  operation.auxiliary.type = type;
  return success;
}

int describe_auxiliary(const MatmulDesc& product, Gemm& operation) {
  operation.auxiliary.address = product.auxiliary;
  operation.auxiliary.leading = product.auxiliary_leading;
  operation.auxiliary.stride = product.auxiliary_stride;
  if (product.auxiliary_leading != 0 && !has_room(operation)) return invalid_value;
  if (!operation.has_mask()) {
    if (const int bad = describe_type_of_arguments(product, operation); bad != success) return bad;
  }
  operation.scale_auxiliary = product.auxiliary_scale;
  operation.largest_auxiliary = product.auxiliary_largest;
  const bool scaled = product.auxiliary_scale != 0 || product.auxiliary_largest != 0;
  const bool stores_f8 =
      stores_auxiliary(operation) && !operation.has_mask() && operations::is_f8(operation.auxiliary.type);
  return (scaled && !stores_f8) || product.auxiliary_scale_mode != 0 ? not_supported : success;
}

}  // namespace

int describe_epilogue(const MatmulDesc& product, Gemm& operation) {
  if (!is_epilogue(product.epilogue)) return not_supported;
  if (product.bias_type >= 0 && !cublas::known(product.bias_type)) return not_supported;
  operation.epilogue = product.epilogue;
  operation.bias = product.bias;
  operation.bias_stride = product.bias_stride;
  operation.bias_type = type_of_bias(product, operation.d.type);
  const bool has_auxiliary = operation.has(operations::epilogue_auxiliary);
  if (!has_auxiliary && !operation.stores_sums()) return success;
  if (!fits_training(operation)) return not_supported;
  return has_auxiliary ? describe_auxiliary(product, operation) : success;
}

int check_epilogue_places(const Gemm& of) {
  // Where all batches store into one place, it would be by chance whose numbers stay.
  if (of.has(operations::epilogue_auxiliary)) {
    if (of.auxiliary.address == 0 || !has_room(of)) return invalid_value;
    if (stores_auxiliary(of) && of.batch > 1 && of.auxiliary.stride == 0) return not_supported;
  }
  if (of.stores_sums()) {
    if (of.bias == 0) return invalid_value;
    if (of.batch > 1 && of.bias_stride == 0) return not_supported;
  }
  return success;
}

}  // namespace gpupool::cublaslt
