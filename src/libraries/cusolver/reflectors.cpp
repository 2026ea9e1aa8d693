// Factorisations by reflectors, and the orthogonal matrices that they make.
#include "libraries/cusolver/calls.h"

namespace gpupool::cusolver {
namespace {

int with_tau(const Handle& handle, const Types& types, const Call& call, Decomposition made) {
  made.tau = placed(call.tau);
  return finish(handle, types, call, made);
}

}  // namespace

int geqrf(Handle& handle, const Types& types, const Call& call) {
  if (!valid(call, true, {call.m >= 0, call.n >= 0, leads(call.lda, call.m)})) return invalid_value;
  return with_tau(handle, types, call, operation(Decomposing::qr, types, call));
}

int orgqr(Handle& handle, const Types& types, const Call& call) {
  if (!valid(call, true,
             {call.m >= 0, call.n >= 0, call.n <= call.m, call.k >= 0, call.k <= call.n,
              leads(call.lda, call.m)}))
    return invalid_value;
  return with_tau(handle, types, call, operation(Decomposing::make_q, types, call));
}

int ormqr(Handle& handle, const Types& types, const Call& call) {
  const std::int64_t order = call.side == 1 ? call.n : call.m;
  if (!valid(call, true,
             {is_flag(call.side), is_adjoint(call.trans, element_of(types, call)), call.m >= 0, call.n >= 0,
              call.k >= 0, call.k <= order, leads(call.lda, order), leads(call.ldc, call.m)}))
    return invalid_value;
  Decomposition made = operation(Decomposing::apply_q, types, call);
  made.c = placed(call.c, call.ldc);
  made.right = call.side == 1;
  made.transpose = static_cast<std::uint8_t>(call.trans);
  return with_tau(handle, types, call, made);
}

int sytrd(Handle& handle, const Types& types, const Call& call) {
  if (!valid(call, true, {is_triangle(call.uplo), call.n >= 0, leads(call.lda, call.n)}))
    return invalid_value;
  Decomposition made = operation(Decomposing::tridiagonal, types, call);
  made.values = placed(call.d);
  made.beside = placed(call.e);
  return with_tau(handle, types, call, made);
}

int orgtr(Handle& handle, const Types& types, const Call& call) {
  if (!valid(call, true, {is_triangle(call.uplo), call.n >= 0, leads(call.lda, call.n)}))
    return invalid_value;
  return with_tau(handle, types, call, operation(Decomposing::tridiagonal_make_q, types, call));
}

int ormtr(Handle& handle, const Types& types, const Call& call) {
  if (!valid(call, true,
             {is_flag(call.side), is_triangle(call.uplo), is_adjoint(call.trans, element_of(types, call)),
              call.m >= 0, call.n >= 0, leads(call.lda, call.side == 1 ? call.n : call.m),
              leads(call.ldc, call.m)}))
    return invalid_value;
  Decomposition made = operation(Decomposing::tridiagonal_apply_q, types, call);
  made.c = placed(call.c, call.ldc);
  made.right = call.side == 1;
  made.transpose = static_cast<std::uint8_t>(call.trans);
  return with_tau(handle, types, call, made);
}

int gebrd(Handle& handle, const Types& types, const Call& call) {
  // As documented: matrices that are wider than high are not taken.
  if (!valid(call, true, {call.m >= 0, call.n >= 0, call.m >= call.n, call.query || leads(call.lda, call.m)}))
    return invalid_value;
  Decomposition made = operation(Decomposing::bidiagonal, types, call);
  made.values = placed(call.d);
  made.beside = placed(call.e);
  made.tau_right = placed(call.taup);
  made.tau = placed(call.tauq);
  return finish(handle, types, call, made);
}

int orgbr(Handle& handle, const Types& types, const Call& call) {
  const std::int64_t longer = call.side == 1 ? call.n : call.m, shorter = call.side == 1 ? call.m : call.n;
  if (!valid(call, true,
             {is_flag(call.side), call.m >= 0, call.n >= 0, call.k >= 0, shorter <= longer,
              shorter >= std::min(longer, call.k), leads(call.lda, call.m)}))
    return invalid_value;
  Decomposition made = operation(Decomposing::bidiagonal_make_q, types, call);
  made.right = call.side == 1;
  return with_tau(handle, types, call, made);
}

}  // namespace gpupool::cusolver
