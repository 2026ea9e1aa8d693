// Triangles that are solved, and what is done to matrices element by element.
#include "libraries/operations/dense.h"
#include "worker/libraries/blas.h"

namespace gpupool::worker {
namespace {

using operations::Each;
using operations::Entrywise;
using operations::Packed;
using operations::Solve;
using operations::View;

View transposed(View view) {
  std::swap(view.row, view.column);
  std::swap(view.below, view.above);
  return view;
}

CUresult solve_vector(Blas& blas, char letter, const Solve& of) {
  const auto a = matrix_argument(of.a, of.m, of.m);
  if (!a) return CUDA_ERROR_NOT_SUPPORTED;
  void* const x = pointer<void>(of.b.address);
  switch (storage_of(of.a)) {
    case Storage::band:
      blas.call(blas_name(letter, "tbsv_v2_64"), a->uplo, a->transposed, a->unit, of.m,
                std::max(of.a.above, of.a.below), a->address, a->leading, x, of.b.row);
      break;
    case Storage::packed:
      blas.call(blas_name(letter, "tpsv_v2_64"), a->uplo, a->transposed, a->unit, of.m, a->address, x,
                of.b.row);
      break;
    default:
      blas.call(blas_name(letter, "trsv_v2_64"), a->uplo, a->transposed, a->unit, of.m, a->address,
                a->leading, x, of.b.row);
  }
  return blas.result();
}

CUresult solve_matrix(Blas& blas, char letter, const Solve& of) {
  // Behind a whole matrix that was transposed, A was on its right, and was transposed with it.
  // A single number on the right is neither: then A says which side it is on that the library can read.
  const bool either = of.b.row == 1 && of.b.column == 1;
  const bool on_left = of.b.row == 1 && !(either && !matrix_argument(of.a, of.m, of.m));
  const View square = on_left ? of.a : transposed(of.a);
  const View sides = on_left ? of.b : transposed(of.b);
  const std::int64_t rows = on_left ? of.m : of.n, columns = on_left ? of.n : of.m;
  const auto a = matrix_argument(square, of.m, of.m), b = matrix_argument(sides, rows, columns);
  if (!a || !b || storage_of(of.a) != Storage::triangle) return CUDA_ERROR_NOT_SUPPORTED;
  const int side = side_of(on_left);
  const void* const alpha = place_of(of.alpha);
  if (of.a.pointers) {
    blas.call(blas_name(letter, "trsmBatched_64"), side, a->uplo, a->transposed, a->unit, rows, columns,
              alpha, static_cast<const void* const*>(a->address), a->leading,
              pointer<void* const>(of.b.address), b->leading, of.batch);
  } else {
    blas.call(blas_name(letter, "trsm_v2_64"), side, a->uplo, a->transposed, a->unit, rows, columns, alpha,
              a->address, a->leading, pointer<void>(of.b.address), b->leading);
  }
  return blas.result();
}

/// A triangle from one form to another.
CUresult repack(Blas& blas, char letter, const Entrywise& of) {
  const bool to_packed = of.c.packed != Packed::no;
  const auto whole = matrix_argument(to_packed ? of.a : of.c, of.m, of.n);
  if (!whole) return CUDA_ERROR_NOT_SUPPORTED;
  const int order = static_cast<int>(of.m), leading = static_cast<int>(whole->leading);
  if (to_packed) {
    blas.call(blas_name(letter, "trttp"), whole->uplo, order, whole->address, leading,
              pointer<void>(of.c.address));
  } else {
    blas.call(blas_name(letter, "tpttr"), whole->uplo, order, pointer<const void>(of.a.address),
              pointer<void>(of.c.address), leading);
  }
  return blas.result();
}

CUresult by_diagonal(Blas& blas, char letter, const Entrywise& of) {
  const auto a = matrix_argument(of.a, of.m, of.n), c = matrix_argument(of.c, of.m, of.n);
  if (!a || !c) return CUDA_ERROR_NOT_SUPPORTED;
  const bool on_left = of.b.column == 0;
  blas.call(blas_name(letter, "dgmm_64"), side_of(on_left), of.m, of.n, a->address, a->leading,
            pointer<const void>(of.b.address), on_left ? of.b.row : of.b.column, pointer<void>(of.c.address),
            c->leading);
  return blas.result();
}

}  // namespace

CUresult run(const Execution& x, const Solve& operation) {
  const auto letter = letter_of(operation.a.type);
  if (!letter) return CUDA_ERROR_NOT_SUPPORTED;
  Blas blas(x, operation.alpha.on_device != 0);
  return is_vector(operation.b) ? solve_vector(blas, *letter, operation)
                                : solve_matrix(blas, *letter, operation);
}

CUresult run(const Execution& x, const Entrywise& operation) {
  const auto letter = letter_of(operation.a.type);
  if (!letter) return CUDA_ERROR_NOT_SUPPORTED;
  Blas blas(x, operation.alpha.on_device != 0);
  if (operation.a.packed != Packed::no || operation.c.packed != Packed::no)
    return repack(blas, *letter, operation);
  if (operation.each == Each::product) return by_diagonal(blas, *letter, operation);
  const auto a = matrix_argument(operation.a, operation.m, operation.n),
             b = matrix_argument(operation.b, operation.m, operation.n),
             c = matrix_argument(operation.c, operation.m, operation.n);
  if (operation.alpha.on_device != operation.beta.on_device) return CUDA_ERROR_INVALID_VALUE;
  if (!a || !b || !c) return CUDA_ERROR_NOT_SUPPORTED;
  blas.call(blas_name(*letter, "geam_64"), a->transposed, b->transposed, operation.m, operation.n,
            place_of(operation.alpha), a->address, a->leading, place_of(operation.beta), b->address,
            b->leading, pointer<void>(operation.c.address), c->leading);
  return blas.result();
}

}  // namespace gpupool::worker
