// Levels 2 and 3 of BLAS: which of its functions a product of views is.
#include "libraries/operations/dense.h"

#include "worker/libraries/blas.h"

namespace gpupool::worker {
namespace {

using operations::Element;
using operations::Mirror;
using operations::Product;
using operations::Structure;
using operations::View;

/// What the functions are given, by the names that BLAS has for it.
struct Arguments {
  const Product& of;
  char letter;
  const void *alpha, *beta;

  /// Whether a function may be given both: where one is, the other would be no address.
  [[nodiscard]] bool factors_fit() const { return of.alpha.on_device == of.beta.on_device; }
};

const void* begin(const View& view) {
  return pointer<const void>(view.address);
}
void* target(const View& view) {
  return pointer<void>(view.address);
}

/// y = alpha · A · x + beta · y for a whole matrix or a band.
CUresult general_by_vector(Blas& blas, const Arguments& with) {
  if (!with.factors_fit()) return CUDA_ERROR_INVALID_VALUE;
  const Product& of = with.of;
  const auto a = matrix_argument(of.a, of.m, of.k);
  if (!a) return CUDA_ERROR_NOT_SUPPORTED;
  const std::int64_t rows = a->transposed != 0 ? of.k : of.m, columns = a->transposed != 0 ? of.m : of.k;
  if (storage_of(of.a) == Storage::band) {
    // Diagonals as they are stored.
    const std::int64_t below = a->transposed != 0 ? of.a.above : of.a.below;
    const std::int64_t above = a->transposed != 0 ? of.a.below : of.a.above;
    blas.call(blas_name(with.letter, "gbmv_v2_64"), a->transposed, rows, columns, below, above, with.alpha,
              a->address, a->leading, begin(of.b), of.b.row, with.beta, target(of.c), of.c.row);
  } else if (of.a.pointers) {
    blas.call(blas_name(with.letter, "gemvBatched_64"), a->transposed, rows, columns, with.alpha,
              static_cast<const void* const*>(a->address), a->leading,
              pointer<const void* const>(of.b.address), of.b.row, with.beta,
              pointer<void* const>(of.c.address), of.c.row, of.batch);
  } else if (of.batch != 1) {
    blas.call(blas_name(with.letter, "gemvStridedBatched_64"), a->transposed, rows, columns, with.alpha,
              a->address, a->leading, static_cast<long long>(a->stride), begin(of.b), of.b.row,
              static_cast<long long>(of.b.stride), with.beta, target(of.c), of.c.row,
              static_cast<long long>(of.c.stride), of.batch);
  } else {
    blas.call(blas_name(with.letter, "gemv_v2_64"), a->transposed, rows, columns, with.alpha, a->address,
              a->leading, begin(of.b), of.b.row, with.beta, target(of.c), of.c.row);
  }
  return blas.result();
}

/// y = alpha · A · x + beta · y for A of which one triangle is stored.
CUresult symmetric_by_vector(Blas& blas, const Arguments& with) {
  if (!with.factors_fit()) return CUDA_ERROR_INVALID_VALUE;
  const Product& of = with.of;
  const auto a = matrix_argument(of.a, of.m, of.m);
  if (!a) return CUDA_ERROR_NOT_SUPPORTED;
  const bool hermitian = of.a.structure == Structure::hermitian;
  switch (storage_of(of.a)) {
    case Storage::band:
      blas.call(blas_name(with.letter, hermitian ? "hbmv_v2_64" : "sbmv_v2_64"), a->uplo, of.m,
                std::max(of.a.above, of.a.below), with.alpha, a->address, a->leading, begin(of.b), of.b.row,
                with.beta, target(of.c), of.c.row);
      break;
    case Storage::packed:
      blas.call(blas_name(with.letter, hermitian ? "hpmv_v2_64" : "spmv_v2_64"), a->uplo, of.m, with.alpha,
                a->address, begin(of.b), of.b.row, with.beta, target(of.c), of.c.row);
      break;
    default:
      blas.call(blas_name(with.letter, hermitian ? "hemv_v2_64" : "symv_v2_64"), a->uplo, of.m, with.alpha,
                a->address, a->leading, begin(of.b), of.b.row, with.beta, target(of.c), of.c.row);
  }
  return blas.result();
}

/// x = A · x for a triangle.
CUresult triangle_by_vector(Blas& blas, const Arguments& with) {
  const Product& of = with.of;
  const auto a = matrix_argument(of.a, of.m, of.m);
  if (!a) return CUDA_ERROR_NOT_SUPPORTED;
  switch (storage_of(of.a)) {
    case Storage::band:
      blas.call(blas_name(with.letter, "tbmv_v2_64"), a->uplo, a->transposed, a->unit, of.m,
                std::max(of.a.above, of.a.below), a->address, a->leading, target(of.c), of.c.row);
      break;
    case Storage::packed:
      blas.call(blas_name(with.letter, "tpmv_v2_64"), a->uplo, a->transposed, a->unit, of.m, a->address,
                target(of.c), of.c.row);
      break;
    default:
      blas.call(blas_name(with.letter, "trmv_v2_64"), a->uplo, a->transposed, a->unit, of.m, a->address,
                a->leading, target(of.c), of.c.row);
  }
  return blas.result();
}

/// A = alpha · x · y + A, the second a row.
CUresult outer(Blas& blas, const Arguments& with) {
  const Product& of = with.of;
  const auto c = matrix_argument(of.c, of.m, of.n);
  if (!c) return CUDA_ERROR_NOT_SUPPORTED;
  const bool complex = operations::is_complex(of.a.type);
  const char* const routine = !complex ? "ger_v2_64" : of.b.conjugated ? "gerc_v2_64" : "geru_v2_64";
  blas.call(blas_name(with.letter, routine), of.m, of.n, with.alpha, begin(of.a), of.a.row, begin(of.b),
            of.b.column, target(of.c), c->leading);
  return blas.result();
}

/// The same for A of which one triangle is stored; with its mirror, the two vectors change places.
CUresult symmetric_outer(Blas& blas, const Arguments& with) {
  const Product& of = with.of;
  const auto c = matrix_argument(of.c, of.m, of.m);
  if (!c) return CUDA_ERROR_NOT_SUPPORTED;
  const bool packed = storage_of(of.c) == Storage::packed, two = of.mirror != Mirror::none;
  const std::string name = blas_name(with.letter, of.real_diagonal ? packed ? "hpr" : "her"
                                                  : packed         ? "spr"
                                                                   : "syr") +
                           (two ? "2_v2_64" : "_v2_64");
  if (two && packed) {
    blas.call(name, c->uplo, of.m, with.alpha, begin(of.a), of.a.row, begin(of.b), of.b.column, target(of.c));
  } else if (two) {
    blas.call(name, c->uplo, of.m, with.alpha, begin(of.a), of.a.row, begin(of.b), of.b.column, target(of.c),
              c->leading);
  } else if (packed) {
    blas.call(name, c->uplo, of.m, with.alpha, begin(of.a), of.a.row, target(of.c));
  } else {
    blas.call(name, c->uplo, of.m, with.alpha, begin(of.a), of.a.row, target(of.c), c->leading);
  }
  return blas.result();
}

/// C, of which one triangle is stored, of A and a transposed B: syrk, syrkx, syr2k and the hermitian ones.
CUresult rank_update(Blas& blas, const Arguments& with) {
  if (!with.factors_fit()) return CUDA_ERROR_INVALID_VALUE;
  const Product& of = with.of;
  const auto c = matrix_argument(of.c, of.m, of.m), a = matrix_argument(of.a, of.m, of.k);
  // B as it is before it is transposed against A.
  View other = of.b;
  std::swap(other.row, other.column);
  if (of.real_diagonal) other.conjugated = !other.conjugated;
  const auto b = matrix_argument(other, of.m, of.k);
  if (!a || !b || !c) return CUDA_ERROR_NOT_SUPPORTED;
  // Of one column (or row) both are the same memory; then as A is.
  const int transposed = a->transposed;
  // herk's alpha is real, herkx's is not.
  const bool own_alpha = !of.real_diagonal || !operations::is_complex(of.alpha.type);
  const bool same =
      a->address == b->address && a->leading == b->leading && of.mirror == Mirror::none && own_alpha;
  const std::string kind = of.real_diagonal ? "her" : "syr";
  if (same) {
    blas.call(blas_name(with.letter, (kind + "k_v2_64").c_str()), c->uplo, transposed, of.m, of.k, with.alpha,
              a->address, a->leading, with.beta, target(of.c), c->leading);
  } else {
    const std::string name = kind + (of.mirror == Mirror::none ? "kx_64" : "2k_v2_64");
    blas.call(blas_name(with.letter, name.c_str()), c->uplo, transposed, of.m, of.k, with.alpha, a->address,
              a->leading, b->address, b->leading, with.beta, target(of.c), c->leading);
  }
  return blas.result();
}

/// C of a matrix, of which one triangle is stored, and a whole one.
CUresult symmetric_by_matrix(Blas& blas, const Arguments& with) {
  if (!with.factors_fit()) return CUDA_ERROR_INVALID_VALUE;
  const Product& of = with.of;
  const bool on_left = of.a.structure != Structure::zero;
  const View& square = on_left ? of.a : of.b;
  const std::int64_t order = on_left ? of.m : of.n;
  const auto a = matrix_argument(square, order, order);
  const auto b = matrix_argument(on_left ? of.b : of.a, of.m, of.n), c = matrix_argument(of.c, of.m, of.n);
  if (!a || !b || !c || storage_of(square) != Storage::triangle) return CUDA_ERROR_NOT_SUPPORTED;
  const bool hermitian = square.structure == Structure::hermitian;
  blas.call(blas_name(with.letter, hermitian ? "hemm_v2_64" : "symm_v2_64"), side_of(on_left), a->uplo, of.m,
            of.n, with.alpha, a->address, a->leading, b->address, b->leading, with.beta, target(of.c),
            c->leading);
  return blas.result();
}

/// C of a triangle and a whole matrix.
CUresult triangle_by_matrix(Blas& blas, const Arguments& with) {
  const Product& of = with.of;
  const bool on_left = storage_of(of.a) == Storage::triangle;
  const View& square = on_left ? of.a : of.b;
  const std::int64_t order = on_left ? of.m : of.n;
  const auto a = matrix_argument(square, order, order);
  const auto b = matrix_argument(on_left ? of.b : of.a, of.m, of.n), c = matrix_argument(of.c, of.m, of.n);
  if (!a || !b || !c || storage_of(square) != Storage::triangle) return CUDA_ERROR_NOT_SUPPORTED;
  blas.call(blas_name(with.letter, "trmm_v2_64"), side_of(on_left), a->uplo, a->transposed, a->unit, of.m,
            of.n, with.alpha, a->address, a->leading, b->address, b->leading, target(of.c), c->leading);
  return blas.result();
}

/// Matrices times vectors of half numbers, whose functions are named by all three types.
std::string half_name(const Product& of) {
  const auto half = of.a.type;
  if (of.b.type != half || (half != Element::f16 && half != Element::bf16)) return {};
  const bool single_result = of.c.type == Element::f32;
  if (!single_result && of.c.type != half) return {};
  const std::string letter = half == Element::f16 ? "H" : "T";
  return letter + "S" + (single_result ? "S" : letter);
}

CUresult half_by_vector(Blas& blas, const Arguments& with) {
  if (!with.factors_fit()) return CUDA_ERROR_INVALID_VALUE;
  const Product& of = with.of;
  const std::string types = half_name(of);
  const auto a = matrix_argument(of.a, of.m, of.k);
  if (types.empty() || !a || !is_vector(of.c) || storage_of(of.a) != Storage::full)
    return CUDA_ERROR_NOT_SUPPORTED;
  const std::int64_t rows = a->transposed != 0 ? of.k : of.m, columns = a->transposed != 0 ? of.m : of.k;
  if (of.a.pointers) {
    blas.call("cublas" + types + "gemvBatched_64", a->transposed, rows, columns, with.alpha,
              static_cast<const void* const*>(a->address), a->leading,
              pointer<const void* const>(of.b.address), of.b.row, with.beta,
              pointer<void* const>(of.c.address), of.c.row, of.batch);
  } else {
    blas.call("cublas" + types + "gemvStridedBatched_64", a->transposed, rows, columns, with.alpha,
              a->address, a->leading, static_cast<long long>(a->stride), begin(of.b), of.b.row,
              static_cast<long long>(of.b.stride), with.beta, target(of.c), of.c.row,
              static_cast<long long>(of.c.stride), of.batch);
  }
  return blas.result();
}

}  // namespace

CUresult run(const Execution& x, const Product& operation) {
  Blas blas(x, operation.alpha.on_device != 0);
  Arguments with{operation, 0, place_of(operation.alpha), place_of(operation.beta)};
  const auto letter = letter_of(operation.a.type);
  if (!letter) return half_by_vector(blas, with);
  with.letter = *letter;
  const bool by_vector = is_vector(operation.c);
  const bool stored_whole = storage_of(operation.c) == Storage::full;
  const auto is_triangle = [](const View& view) {
    const Storage storage = storage_of(view);
    return view.structure == Structure::zero &&
           (storage == Storage::packed || (storage != Storage::full && (view.above == 0 || view.below == 0)));
  };
  if (!stored_whole) return is_vector(operation.a) ? symmetric_outer(blas, with) : rank_update(blas, with);
  if (operation.a.structure != Structure::zero || operation.b.structure != Structure::zero)
    return by_vector ? symmetric_by_vector(blas, with) : symmetric_by_matrix(blas, with);
  // A vector that is multiplied where it lies; a band with no diagonal on one side may be any matrix's.
  if (by_vector && operation.in_place != operations::InPlace::no) return triangle_by_vector(blas, with);
  if (by_vector) return general_by_vector(blas, with);
  if (is_triangle(operation.a) || is_triangle(operation.b)) return triangle_by_matrix(blas, with);
  return outer(blas, with);
}

}  // namespace gpupool::worker
