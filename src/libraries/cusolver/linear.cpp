// Factorisations that solve systems, and what is solved with them.
#include "libraries/cusolver/calls.h"

namespace gpupool::cusolver {
namespace {

/// A square matrix of which one triangle is used.
int with_triangle(const Handle& handle, const Types& types, const Call& call, Decomposing what,
                  bool has_space) {
  if (!valid(call, has_space,
             {is_triangle(call.uplo), is_flag(call.diag), call.n >= 0, leads(call.lda, call.n),
              call.batch >= 0}))
    return invalid_value;
  Decomposition made = operation(what, types, call);
  made.unit = call.diag == 1;
  return finish(handle, types, call, made);
}

int solve(const Handle& handle, const Types& types, const Call& call, Decomposing what, bool has_space) {
  if (!valid(call, has_space,
             {is_triangle(call.uplo), call.trans >= 0 && call.trans <= 2, call.n >= 0, call.nrhs >= 0,
              leads(call.lda, call.n), leads(call.ldb, call.n), call.batch >= 0}))
    return invalid_value;
  Decomposition made = operation(what, types, call);
  made.b = placed(call.b, call.ldb);
  made.b.pointers = call.pointers;
  made.columns = call.nrhs;
  made.transpose = static_cast<std::uint8_t>(call.trans);
  made.one_info = true;
  return finish(handle, types, call, made);
}

/// Solvers that may refine what a narrower type has found. Here none is worth it: everything is computed in
/// the type of the operands, which cuSOLVER tells by this number of iterations.
int solve_refined(const Handle& handle, const Types& types, const Call& call, Decomposing what,
                  std::int64_t rows) {
  constexpr int no_narrower_type = -1;
  if (call.n < 0 || rows < call.n || call.nrhs < 0 || !leads(call.lda, rows) || !leads(call.ldb, rows) ||
      !leads(call.ldx, call.n))
    return invalid_value;
  if (call.query) {
    if (call.device_size == nullptr) return invalid_value;
    *static_cast<std::size_t*>(call.device_size) = operations::bytes_of(types.element);
    return success;
  }
  if (call.device_bytes == 0 || call.iterations == nullptr) return invalid_value;
  Decomposition made = operation(what, types, call);
  made.b = placed(call.b, call.ldb);
  made.c = placed(call.x, call.ldx);
  made.columns = call.nrhs;
  const int status = finish(handle, types, call, made);
  if (status == success) *static_cast<int*>(call.iterations) = no_narrower_type;
  return status;
}

}  // namespace

int gesv(Handle& handle, const Types& types, const Call& call) {
  return solve_refined(handle, types, call, Decomposing::system, call.n);
}
int gels(Handle& handle, const Types& types, const Call& call) {
  return solve_refined(handle, types, call, Decomposing::least_squares, call.m);
}

int potrf(Handle& handle, const Types& types, const Call& call) {
  return with_triangle(handle, types, call, Decomposing::cholesky, !call.pointers);
}
int potri(Handle& handle, const Types& types, const Call& call) {
  return with_triangle(handle, types, call, Decomposing::cholesky_inverse, true);
}
int trtri(Handle& handle, const Types& types, const Call& call) {
  return with_triangle(handle, types, call, Decomposing::triangle_inverse, true);
}
int lauum(Handle& handle, const Types& types, const Call& call) {
  return with_triangle(handle, types, call, Decomposing::triangle_product, true);
}
int sytrf(Handle& handle, const Types& types, const Call& call) {
  // Without pivots the factorisation is another one.
  if (!call.query && call.pivots == nullptr && call.n > 0) return not_supported;
  return with_triangle(handle, types, call, Decomposing::ldl, true);
}
int sytri(Handle& handle, const Types& types, const Call& call) {
  if (!call.query && call.pivots == nullptr && call.n > 0) return not_supported;
  return with_triangle(handle, types, call, Decomposing::ldl_inverse, true);
}

int potrs(Handle& handle, const Types& types, const Call& call) {
  return solve(handle, types, call, Decomposing::cholesky_solve, false);
}
int getrs(Handle& handle, const Types& types, const Call& call) {
  return solve(handle, types, call, Decomposing::lu_solve, false);
}
int sytrs(Handle& handle, const Types& types, const Call& call) {
  if (!call.query && call.pivots == nullptr && call.n > 0) return not_supported;
  return solve(handle, types, call, Decomposing::ldl_solve, true);
}

int getrf(Handle& handle, const Types& types, const Call& call) {
  // The function of 32 bits is not told how much space it has.
  if (!valid(call, call.wide, {call.m >= 0, call.n >= 0, leads(call.lda, call.m)})) return invalid_value;
  return finish(handle, types, call, operation(Decomposing::lu, types, call));
}

int laswp(Handle& handle, const Types& types, const Call& call) {
  if (!valid(call, false,
             {call.n >= 0, call.k1 >= 1, call.k2 >= call.k1, leads(call.lda, call.k2), call.incx != 0}))
    return invalid_value;
  Decomposition made = operation(Decomposing::exchange, types, call);
  made.m = call.incx < 0 ? -call.incx : call.incx;
  made.k = call.k1;
  made.columns = call.k2;
  made.right = call.incx < 0;
  return finish(handle, types, call, made);
}

}  // namespace gpupool::cusolver
