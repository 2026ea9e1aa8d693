// Level 1 of BLAS, by the functions that are told their types.
#include "libraries/operations/vectors.h"

#include "worker/libraries/blas.h"

namespace gpupool::worker {
namespace {

using operations::Element;
using operations::OnVectors;
using operations::Vectors;

int number(Element type) {
  return static_cast<int>(type);
}

/// A real factor of complex vectors has functions of its own.
bool is_mixed(const Vectors& of, Element factor) {
  return operations::is_complex(of.x.type) && !operations::is_complex(factor);
}

/// The five numbers of a modified rotation as the functions take them.
template <class T>
void rotate_modified(Blas& blas, char letter, const Vectors& of) {
  T parameters[5];
  for (int i = 0; i < 5; ++i) parameters[i] = static_cast<T>(of.parameters[i]);
  const void* const place = of.alpha.on_device ? pointer<const void>(of.alpha.value.words[0])
                                               : static_cast<const void*>(parameters);
  blas.call(blas_name(letter, "rotm_v2_64"), of.n, pointer<void>(of.x.address), of.x.increment,
            pointer<void>(of.y.address), of.y.increment, place);
}

void change(Blas& blas, const Vectors& of) {
  void *const x = pointer<void>(of.x.address), *const y = pointer<void>(of.y.address);
  const int type_x = number(of.x.type), type_y = number(of.y.type), compute = number(of.compute);
  const void *const alpha = place_of(of.alpha), *const beta = place_of(of.beta);
  switch (of.what) {
    case OnVectors::copy:
      return blas.call("cublasCopyEx_64", of.n, static_cast<const void*>(x), type_x, of.x.increment, y,
                       type_y, of.y.increment);
    case OnVectors::swap:
      return blas.call("cublasSwapEx_64", of.n, x, type_x, of.x.increment, y, type_y, of.y.increment);
    case OnVectors::scale:
      if (is_mixed(of, of.alpha.type)) {
        return blas.call(of.x.type == Element::c32 ? "cublasCsscal_v2_64" : "cublasZdscal_v2_64", of.n, alpha,
                         x, of.x.increment);
      }
      return blas.call("cublasScalEx_64", of.n, alpha, number(of.alpha.type), x, type_x, of.x.increment,
                       compute);
    case OnVectors::add:
      return blas.call("cublasAxpyEx_64", of.n, alpha, number(of.alpha.type), static_cast<const void*>(x),
                       type_x, of.x.increment, y, type_y, of.y.increment, compute);
    case OnVectors::rotate:
      if (is_mixed(of, of.beta.type)) {
        return blas.call(of.x.type == Element::c32 ? "cublasCsrot_v2_64" : "cublasZdrot_v2_64", of.n, x,
                         of.x.increment, y, of.y.increment, alpha, beta);
      }
      return blas.call("cublasRotEx_64", of.n, x, type_x, of.x.increment, y, type_y, of.y.increment, alpha,
                       beta, number(of.beta.type), compute);
    case OnVectors::modified:
      if (of.x.type == Element::f64) return rotate_modified<double>(blas, 'D', of);
      return rotate_modified<float>(blas, 'S', of);
    default:
      return;
  }
}

/// The result goes to device memory.
void reduce(Blas& blas, const Vectors& of) {
  const void *const x = pointer<const void>(of.x.address), *const y = pointer<const void>(of.y.address);
  const int type_x = number(of.x.type), result_type = number(of.result), compute = number(of.compute);
  const int real_compute = number(real_of(of.compute));
  void* const result = pointer<void>(of.places[0]);
  const bool largest = of.what == OnVectors::largest;
  switch (of.what) {
    case OnVectors::dot:
    case OnVectors::conjugated_dot:
      return blas.call(of.what == OnVectors::dot ? "cublasDotEx_64" : "cublasDotcEx_64", of.n, x, type_x,
                       of.x.increment, y, number(of.y.type), of.y.increment, result, result_type, compute);
    case OnVectors::norm:  // these add real numbers also of complex vectors, and cuBLAS wants that said
      return blas.call("cublasNrm2Ex_64", of.n, x, type_x, of.x.increment, result, result_type, real_compute);
    case OnVectors::sum:
      return blas.call("cublasAsumEx_64", of.n, x, type_x, of.x.increment, result, result_type, real_compute);
    case OnVectors::largest:
    case OnVectors::smallest:
      if (of.wide) {
        return blas.call(largest ? "cublasIamaxEx_64" : "cublasIaminEx_64", of.n, x, type_x, of.x.increment,
                         result);
      }
      return blas.call(largest ? "cublasIamaxEx" : "cublasIaminEx", static_cast<int>(of.n), x, type_x,
                       static_cast<int>(of.x.increment), result);
    default:
      return;
  }
}

/// Rotations of numbers in device memory.
void make(Blas& blas, char letter, const Vectors& of) {
  void* places[5];
  for (int i = 0; i < 5; ++i) places[i] = pointer<void>(of.places[i]);
  if (of.what == OnVectors::make_rotation) {
    if (letter_of(of.beta.type) == letter) {
      return blas.call(blas_name(letter, "rotg_v2"), places[0], places[1], places[2], places[3]);
    }
    return blas.call("cublasRotgEx", places[0], places[1], number(of.x.type), places[2], places[3],
                     number(of.beta.type), number(of.compute));
  }
  blas.call(blas_name(letter, "rotmg_v2"), places[0], places[1], places[2],
            static_cast<const void*>(places[3]), places[4]);
}

}  // namespace

CUresult run(const Execution& x, const Vectors& operation) {
  const bool makes = operation.what >= OnVectors::make_rotation;
  const bool reduces = !makes && operation.what >= OnVectors::dot;
  Blas blas(x, makes || reduces || operation.alpha.on_device != 0);
  if (operation.what == OnVectors::rotate && operation.alpha.on_device != operation.beta.on_device)
    return CUDA_ERROR_INVALID_VALUE;
  const auto letter = letter_of(operation.x.type);
  if (makes && !letter) return CUDA_ERROR_NOT_SUPPORTED;
  if (makes) {
    make(blas, *letter, operation);
  } else if (reduces) {
    reduce(blas, operation);
  } else {
    change(blas, operation);
  }
  return blas.result();
}

}  // namespace gpupool::worker
