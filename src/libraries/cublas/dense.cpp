// Levels 2 and 3: each routine is a product, a solution, or something element by element, of matrices whose
// form is said by views.
#include "libraries/operations/dense.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "libraries/cublas/calls.h"
#include "libraries/shared/launch.h"

namespace gpupool::cublas {
namespace {

using operations::Each;
using operations::Entrywise;
using operations::InPlace;
using operations::Mirror;
using operations::Packed;
using operations::Product;
using operations::Solve;
using operations::Structure;
using operations::View;

enum : int { left = 0, right = 1, lower = 0, upper = 1, as_it_is = 0, transpose = 1, conjugate = 2 };

// The checks of arguments.
bool is_flag(int value) {
  return value == 0 || value == 1;
}
bool is_trans(int value) {
  return value >= as_it_is && value <= conjugate;
}
bool are_sizes(std::initializer_list<std::int64_t> sizes) {
  return std::ranges::all_of(sizes, [](std::int64_t size) { return size >= 0; });
}
bool leads(std::int64_t leading, std::int64_t rows) {
  return leading >= std::max<std::int64_t>(1, rows);
}

Element sum_of(Element type) {
  return type == Element::f64 || operations::is_complex(type) ? type : Element::f32;
}

View matrix(const void* at, std::int64_t leading, Element type) {
  View view;
  view.address = address(at);
  view.column = leading;
  view.type = type;
  return view;
}

/// A negative increment begins at the other end.
View vector(const void* at, std::int64_t n, std::int64_t increment, Element type) {
  View view;
  view.address = address(at);
  view.row = increment;
  view.offset = increment < 0 && n > 0 ? (1 - n) * increment : 0;
  view.type = type;
  return view;
}

/// The view with its triangle alone.
View triangle(View view, int uplo) {
  (uplo == upper ? view.below : view.above) = 0;
  return view;
}

/// The square matrix of a call, stored in one triangle: whole, in a band of k diagonals, or packed.
View stored_triangle(const Call& call, const void* at, Element type) {
  View view = triangle(matrix(at, call.lda, type), call.uplo);
  if (call.band) {
    view.column = call.lda - 1;
    view.offset = call.uplo == upper ? call.k : 0;
    (call.uplo == upper ? view.above : view.below) = call.k;
  } else if (call.packed) {
    view.packed = call.uplo == upper ? Packed::upper : Packed::lower;
    view.column = call.n;
  }
  return view;
}
bool stored_triangle_fits(const Call& call) {
  if (!is_flag(call.uplo) || !are_sizes({call.n, call.k})) return false;
  return call.packed || leads(call.lda, call.band ? call.k + 1 : call.n);
}

View transposed(View view) {
  std::swap(view.row, view.column);
  std::swap(view.below, view.above);
  if (view.packed != Packed::no) {
    std::swap(view.row, view.column);
    view.turned = !view.turned;
  }
  return view;
}
View conjugated(View view) {
  view.conjugated = !view.conjugated;
  return view;
}
View adjoint(View view) {
  return conjugated(transposed(view));
}
View op(View view, int trans) {
  return trans == as_it_is ? view : trans == transpose ? transposed(view) : adjoint(view);
}

View mirrored(View view, const Call& call) {
  view.structure = call.hermitian ? Structure::hermitian : Structure::symmetric;
  return view;
}
View unit(View view, int diag) {
  view.unit = diag == 1;
  return view;
}

template <class O>
int post(const Handle& handle, const O& operation) {
  return status_of(libraries::launch(operation, handle.stream));
}

/// C = alpha · A · B + beta · C with the factors of the call; those that it says are real.
Product product(const Handle& handle, const Types& types, const Call& call, const View& a, const View& b,
                const View& c) {
  Product made;
  made.a = a;
  made.b = b;
  made.c = c;
  made.sum = sum_of(types.element);
  made.batch = call.batch;
  if (call.alpha != nullptr)
    made.alpha = factor(handle, call.alpha, call.real_alpha ? real_of(types.scalar) : types.scalar);
  if (call.beta != nullptr)
    made.beta = factor(handle, call.beta, call.real_beta ? real_of(types.scalar) : types.scalar);
  return made;
}

void sizes(Product& made, std::int64_t m, std::int64_t n, std::int64_t k) {
  made.m = m;
  made.n = n;
  made.k = k;
}

/// Mirrored where the rank is 2.
Mirror mirror_of(const Call& call) {
  return call.hermitian ? Mirror::conjugated : Mirror::transposed;
}

}  // namespace

int gemv(Handle& handle, const Types& types, const Call& call) {
  const bool fits = is_trans(call.trans) && are_sizes({call.m, call.n, call.kl, call.ku, call.batch}) &&
                    leads(call.lda, call.band ? call.kl + call.ku + 1 : call.m) && call.incx != 0 &&
                    call.incy != 0 && call.alpha != nullptr && call.beta != nullptr;
  if (!fits) return invalid_value;
  if (call.m == 0 || call.n == 0 || call.batch == 0) return success;
  const bool turned = call.trans != as_it_is;
  const std::int64_t rows = turned ? call.n : call.m, terms = turned ? call.m : call.n;
  View a = matrix(call.a, call.lda, types.element);
  if (call.band) {
    a.column = call.lda - 1;
    a.offset = call.ku;
    a.below = call.kl;
    a.above = call.ku;
  }
  View x = vector(call.x, terms, call.incx, types.element), y = vector(call.y, rows, call.incy, types.output);
  a.stride = call.stride_a;
  x.stride = call.stride_x;
  y.stride = call.stride_y;
  a.pointers = x.pointers = y.pointers = call.pointers;
  Product made = product(handle, types, call, op(a, call.trans), x, y);
  sizes(made, rows, 1, terms);
  return post(handle, made);
}

int symv(Handle& handle, const Types& types, const Call& call) {
  if (!stored_triangle_fits(call) || call.incx == 0 || call.incy == 0 || call.alpha == nullptr ||
      call.beta == nullptr)
    return invalid_value;
  if (call.n == 0) return success;
  Product made = product(handle, types, call, mirrored(stored_triangle(call, call.a, types.element), call),
                         vector(call.x, call.n, call.incx, types.element),
                         vector(call.y, call.n, call.incy, types.element));
  sizes(made, call.n, 1, call.n);
  return post(handle, made);
}

int trmv(Handle& handle, const Types& types, const Call& call) {
  if (!stored_triangle_fits(call) || !is_trans(call.trans) || !is_flag(call.diag) || call.incx == 0)
    return invalid_value;
  if (call.n == 0) return success;
  const View x = vector(call.x, call.n, call.incx, types.element);
  Product made = product(handle, types, call,
                         op(unit(stored_triangle(call, call.a, types.element), call.diag), call.trans), x, x);
  made.alpha = constant(1);
  made.beta = constant(0);
  made.in_place = InPlace::right;
  sizes(made, call.n, 1, call.n);
  return post(handle, made);
}

int trsv(Handle& handle, const Types& types, const Call& call) {
  if (!stored_triangle_fits(call) || !is_trans(call.trans) || !is_flag(call.diag) || call.incx == 0)
    return invalid_value;
  if (call.n == 0) return success;
  Solve made;
  made.a = op(unit(stored_triangle(call, call.a, types.element), call.diag), call.trans);
  made.b = vector(call.x, call.n, call.incx, types.element);
  made.m = call.n;
  made.n = 1;
  made.alpha = constant(1);
  return post(handle, made);
}

int ger(Handle& handle, const Types& types, const Call& call) {
  if (!are_sizes({call.m, call.n}) || !leads(call.lda, call.m) || call.incx == 0 || call.incy == 0 ||
      call.alpha == nullptr)
    return invalid_value;
  if (call.m == 0 || call.n == 0) return success;
  const View y = vector(call.y, call.n, call.incy, types.element);
  Product made =
      product(handle, types, call, vector(call.x, call.m, call.incx, types.element),
              call.conjugated ? adjoint(y) : transposed(y), matrix(call.a, call.lda, types.element));
  made.beta = constant(1);
  sizes(made, call.m, call.n, 1);
  return post(handle, made);
}

int syr(Handle& handle, const Types& types, const Call& call) {
  if (!stored_triangle_fits(call) || call.incx == 0 || call.alpha == nullptr) return invalid_value;
  if (call.n == 0) return success;
  const View x = vector(call.x, call.n, call.incx, types.element);
  Product made = product(handle, types, call, x, call.hermitian ? adjoint(x) : transposed(x),
                         stored_triangle(call, call.a, types.element));
  made.beta = constant(1);
  made.real_diagonal = call.hermitian;
  sizes(made, call.n, call.n, 1);
  return post(handle, made);
}

int syr2(Handle& handle, const Types& types, const Call& call) {
  if (!stored_triangle_fits(call) || call.incx == 0 || call.incy == 0 || call.alpha == nullptr)
    return invalid_value;
  if (call.n == 0) return success;
  const View y = vector(call.y, call.n, call.incy, types.element);
  Product made =
      product(handle, types, call, vector(call.x, call.n, call.incx, types.element),
              call.hermitian ? adjoint(y) : transposed(y), stored_triangle(call, call.a, types.element));
  made.beta = constant(1);
  made.mirror = mirror_of(call);
  made.real_diagonal = call.hermitian;
  sizes(made, call.n, call.n, 1);
  return post(handle, made);
}

int symm(Handle& handle, const Types& types, const Call& call) {
  const std::int64_t order = call.side == left ? call.m : call.n;
  const bool fits = is_flag(call.side) && is_flag(call.uplo) && are_sizes({call.m, call.n}) &&
                    leads(call.lda, order) && leads(call.ldb, call.m) && leads(call.ldc, call.m) &&
                    call.alpha != nullptr && call.beta != nullptr;
  if (!fits) return invalid_value;
  if (call.m == 0 || call.n == 0) return success;
  const View a = mirrored(triangle(matrix(call.a, call.lda, types.element), call.uplo), call);
  const View b = matrix(call.b, call.ldb, types.element);
  Product made = product(handle, types, call, call.side == left ? a : b, call.side == left ? b : a,
                         matrix(call.c, call.ldc, types.element));
  sizes(made, call.m, call.n, order);
  return post(handle, made);
}

namespace {

/// C, of which one triangle is stored, of op(A) and the transposed op(B).
int rank_update(const Handle& handle, const Types& types, const Call& call, const void* b, std::int64_t ldb,
                Mirror mirror) {
  const bool complex = operations::is_complex(types.element);
  const bool fits = is_flag(call.uplo) && is_trans(call.trans) && are_sizes({call.n, call.k}) &&
                    !(complex && call.trans == (call.hermitian ? transpose : conjugate)) &&
                    leads(call.lda, call.trans == as_it_is ? call.n : call.k) &&
                    leads(ldb, call.trans == as_it_is ? call.n : call.k) && leads(call.ldc, call.n) &&
                    call.alpha != nullptr && call.beta != nullptr;
  if (!fits) return invalid_value;
  if (call.n == 0) return success;
  const View right_factor = op(matrix(b, ldb, types.element), call.trans);
  Product made = product(handle, types, call, op(matrix(call.a, call.lda, types.element), call.trans),
                         call.hermitian ? adjoint(right_factor) : transposed(right_factor),
                         triangle(matrix(call.c, call.ldc, types.element), call.uplo));
  made.mirror = mirror;
  made.real_diagonal = call.hermitian;
  sizes(made, call.n, call.n, call.k);
  return post(handle, made);
}

}  // namespace

int syrk(Handle& handle, const Types& types, const Call& call) {
  // Of cublasCsyrkEx and cublasCherkEx: complex integers are not known.
  if (call.type_a >= 0 &&
      (call.type_a != static_cast<int>(Element::c32) || call.type_c != static_cast<int>(Element::c32)))
    return not_supported;
  return rank_update(handle, types, call, call.a, call.lda, Mirror::none);
}
int syrkx(Handle& handle, const Types& types, const Call& call) {
  return rank_update(handle, types, call, call.b, call.ldb, Mirror::none);
}
int syr2k(Handle& handle, const Types& types, const Call& call) {
  return rank_update(handle, types, call, call.b, call.ldb, mirror_of(call));
}

namespace {

bool triangle_fits(const Call& call) {
  return is_flag(call.side) && is_flag(call.uplo) && is_trans(call.trans) && is_flag(call.diag) &&
         are_sizes({call.m, call.n, call.batch}) && leads(call.lda, call.side == left ? call.m : call.n) &&
         leads(call.ldb, call.m) && call.alpha != nullptr;
}
View triangle_of(const Call& call, Element type) {
  return op(unit(triangle(matrix(call.a, call.lda, type), call.uplo), call.diag), call.trans);
}

}  // namespace

int trmm(Handle& handle, const Types& types, const Call& call) {
  if (!triangle_fits(call) || !leads(call.ldc, call.m)) return invalid_value;
  if (call.m == 0 || call.n == 0) return success;
  const bool on_left = call.side == left;
  const View a = triangle_of(call, types.element), b = matrix(call.b, call.ldb, types.element);
  Product made =
      product(handle, types, call, on_left ? a : b, on_left ? b : a, matrix(call.c, call.ldc, types.element));
  made.beta = constant(0);
  if (call.b == call.c) made.in_place = on_left ? InPlace::right : InPlace::left;
  sizes(made, call.m, call.n, on_left ? call.m : call.n);
  return post(handle, made);
}

int trsm(Handle& handle, const Types& types, const Call& call) {
  if (!triangle_fits(call)) return invalid_value;
  if (call.m == 0 || call.n == 0 || call.batch == 0) return success;
  const bool on_left = call.side == left;
  Solve made;
  made.a = triangle_of(call, types.element);
  made.b = matrix(call.b, call.ldb, types.element);
  made.a.pointers = made.b.pointers = call.pointers;
  // X · A = B is Aᵀ · Xᵀ = Bᵀ.
  if (!on_left) {
    made.a = transposed(made.a);
    made.b = transposed(made.b);
  }
  made.m = on_left ? call.m : call.n;
  made.n = on_left ? call.n : call.m;
  made.batch = call.batch;
  made.alpha = factor(handle, call.alpha, types.scalar);
  return post(handle, made);
}

int geam(Handle& handle, const Types& types, const Call& call) {
  const std::int64_t rows_a = call.transa == as_it_is ? call.m : call.n;
  const std::int64_t rows_b = call.transb == as_it_is ? call.m : call.n;
  const bool fits = is_trans(call.transa) && is_trans(call.transb) && are_sizes({call.m, call.n}) &&
                    leads(call.lda, rows_a) && leads(call.ldb, rows_b) && leads(call.ldc, call.m) &&
                    call.alpha != nullptr && call.beta != nullptr;
  // A matrix that is overwritten lies as C does.
  const bool apart = (call.a != call.c || (call.transa == as_it_is && call.lda == call.ldc)) &&
                     (call.b != call.c || (call.transb == as_it_is && call.ldb == call.ldc));
  if (!fits || !apart) return invalid_value;
  if (call.m == 0 || call.n == 0) return success;
  Entrywise made;
  made.a = op(matrix(call.a, call.lda, types.element), call.transa);
  made.b = op(matrix(call.b, call.ldb, types.element), call.transb);
  made.c = matrix(call.c, call.ldc, types.element);
  made.m = call.m;
  made.n = call.n;
  made.alpha = factor(handle, call.alpha, types.scalar);
  made.beta = factor(handle, call.beta, types.scalar);
  return post(handle, made);
}

int dgmm(Handle& handle, const Types& types, const Call& call) {
  if (!is_flag(call.side) || !are_sizes({call.m, call.n}) || !leads(call.lda, call.m) ||
      !leads(call.ldc, call.m))
    return invalid_value;
  if (call.m == 0 || call.n == 0) return success;
  Entrywise made;
  made.a = matrix(call.a, call.lda, types.element);
  made.b = vector(call.x, call.side == left ? call.m : call.n, call.incx, types.element);
  made.b.column = 0;
  if (call.side == right) std::swap(made.b.row, made.b.column);
  made.c = matrix(call.c, call.ldc, types.element);
  made.m = call.m;
  made.n = call.n;
  made.each = Each::product;
  return post(handle, made);
}

namespace {

/// A triangle from one form to another.
int repack(const Handle& handle, const Types& types, const Call& call, bool to_packed) {
  if (!is_flag(call.uplo) || !are_sizes({call.n}) || !leads(call.lda, call.n)) return invalid_value;
  if (call.n == 0) return success;
  const View whole = triangle(matrix(call.a, call.lda, types.element), call.uplo);
  Call of_packed = call;
  of_packed.packed = true;
  const View packed = stored_triangle(of_packed, call.x, types.element);
  Entrywise made;
  made.a = to_packed ? whole : packed;
  made.b = made.a;
  made.c = to_packed ? packed : whole;
  made.m = made.n = call.n;
  made.alpha = constant(1);
  made.beta = constant(0);
  return post(handle, made);
}

}  // namespace

int tpttr(Handle& handle, const Types& types, const Call& call) {
  return repack(handle, types, call, false);
}
int trttp(Handle& handle, const Types& types, const Call& call) {
  return repack(handle, types, call, true);
}

}  // namespace gpupool::cublas
