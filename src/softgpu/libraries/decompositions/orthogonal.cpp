// Factorisations by reflectors, and the orthogonal matrices that they make.
#include "softgpu/libraries/decompositions/task.h"

namespace softgpu::libraries {
namespace {

using lapack::by_type;
using lapack::call;
using lapack::with_work;

template <class N>
std::int64_t qr(const Task<N>& task) {
  const auto a = task.matrix(task.op.a, task.op.m, task.op.n, "A");
  N* const tau = task.vector(task.op.tau, std::min(a.rows, a.columns), "tau");
  std::int64_t info = 0;
  with_work<N>([&](N* work, std::int64_t size) {
    call<N>("geqrf", a.rows, a.columns, a.data, a.leading, tau, work, size, &info);
  });
  return info;
}

template <class N>
std::int64_t make_q(const Task<N>& task) {
  const std::int64_t k = task.op.k;
  const auto a = task.matrix(task.op.a, task.op.m, task.op.n, "A");
  if (a.columns > a.rows || k > a.columns) wrong("Q has no such columns");
  const N* const tau = task.vector(task.op.tau, k, "tau");
  std::int64_t info = 0;
  with_work<N>([&](N* work, std::int64_t size) {
    call<N>(by_type<N>("orgqr", "ungqr"), a.rows, a.columns, k, a.data, a.leading, tau, work, size, &info);
  });
  return info;
}

/// LAPACK writes ones into A's diagonal meanwhile, which others may read: so it gets a copy.
template <class N>
std::int64_t apply_q(const Task<N>& task) {
  const auto c = task.matrix(task.op.c, task.op.m, task.op.n, "C");
  const std::int64_t order = task.op.right ? c.columns : c.rows, k = task.op.k;
  if (k > order) wrong("Q has no such reflectors");
  const Own<N> a(task.matrix(task.op.a, order, k, "A"));
  const N* const tau = task.vector(task.op.tau, k, "tau");
  std::int64_t info = 0;
  with_work<N>([&](N* work, std::int64_t size) {
    call<N>(by_type<N>("ormqr", "unmqr"), task.side(), task.adjoint(), c.rows, c.columns, k, a->data,
            a->leading, tau, c.data, c.leading, work, size, &info);
  });
  return info;
}

template <class N>
std::int64_t tridiagonal(const Task<N>& task) {
  const auto a = task.matrix(task.op.a, task.op.n, task.op.n, "A");
  const std::int64_t between = std::max<std::int64_t>(a.rows - 1, 0);
  auto* const diagonal = task.template vector<Real<N>>(task.op.values, a.rows, "D");
  auto* const beside = task.template vector<Real<N>>(task.op.beside, between, "E");
  N* const tau = task.vector(task.op.tau, between, "tau");
  std::int64_t info = 0;
  with_work<N>([&](N* work, std::int64_t size) {
    call<N>(by_type<N>("sytrd", "hetrd"), task.triangle(), a.rows, a.data, a.leading, diagonal, beside, tau,
            work, size, &info);
  });
  return info;
}

template <class N>
std::int64_t tridiagonal_make_q(const Task<N>& task) {
  const auto a = task.matrix(task.op.a, task.op.n, task.op.n, "A");
  const N* const tau = task.vector(task.op.tau, std::max<std::int64_t>(a.rows - 1, 0), "tau");
  std::int64_t info = 0;
  with_work<N>([&](N* work, std::int64_t size) {
    call<N>(by_type<N>("orgtr", "ungtr"), task.triangle(), a.rows, a.data, a.leading, tau, work, size, &info);
  });
  return info;
}

template <class N>
std::int64_t tridiagonal_apply_q(const Task<N>& task) {
  const auto c = task.matrix(task.op.c, task.op.m, task.op.n, "C");
  const std::int64_t order = task.op.right ? c.columns : c.rows;
  const Own<N> a(task.matrix(task.op.a, order, order, "A"));
  const N* const tau = task.vector(task.op.tau, std::max<std::int64_t>(order - 1, 0), "tau");
  std::int64_t info = 0;
  with_work<N>([&](N* work, std::int64_t size) {
    call<N>(by_type<N>("ormtr", "unmtr"), task.side(), task.triangle(), task.adjoint(), c.rows, c.columns,
            a->data, a->leading, tau, c.data, c.leading, work, size, &info);
  });
  return info;
}

template <class N>
std::int64_t bidiagonal(const Task<N>& task) {
  const auto a = task.matrix(task.op.a, task.op.m, task.op.n, "A");
  const std::int64_t order = std::min(a.rows, a.columns);
  auto* const diagonal = task.template vector<Real<N>>(task.op.values, order, "D");
  auto* const beside =
      task.template vector<Real<N>>(task.op.beside, std::max<std::int64_t>(order - 1, 0), "E");
  N* const left = task.vector(task.op.tau, order, "tauq");
  N* const right = task.vector(task.op.tau_right, order, "taup");
  std::int64_t info = 0;
  with_work<N>([&](N* work, std::int64_t size) {
    call<N>("gebrd", a.rows, a.columns, a.data, a.leading, diagonal, beside, left, right, work, size, &info);
  });
  return info;
}

template <class N>
std::int64_t bidiagonal_make_q(const Task<N>& task) {
  const auto a = task.matrix(task.op.a, task.op.m, task.op.n, "A");
  const std::int64_t k = task.op.k;
  const std::int64_t longer = task.op.right ? a.columns : a.rows,
                     shorter = task.op.right ? a.rows : a.columns;
  if (shorter > longer || shorter < std::min(longer, k)) wrong("Q has no such columns");
  const N* const tau = task.vector(task.op.tau, std::min(longer, k), "tau");
  std::int64_t info = 0;
  with_work<N>([&](N* work, std::int64_t size) {
    call<N>(by_type<N>("orgbr", "ungbr"), task.op.right ? 'P' : 'Q', a.rows, a.columns, k, a.data, a.leading,
            tau, work, size, &info);
  });
  return info;
}

}  // namespace

template <class N>
std::int64_t make_orthogonal(const Task<N>& task) {
  switch (task.op.what) {
    case Decomposing::qr:
      return qr(task);
    case Decomposing::make_q:
      return make_q(task);
    case Decomposing::apply_q:
      return apply_q(task);
    case Decomposing::tridiagonal:
      return tridiagonal(task);
    case Decomposing::tridiagonal_make_q:
      return tridiagonal_make_q(task);
    case Decomposing::tridiagonal_apply_q:
      return tridiagonal_apply_q(task);
    case Decomposing::bidiagonal:
      return bidiagonal(task);
    case Decomposing::bidiagonal_make_q:
      return bidiagonal_make_q(task);
    default:
      wrong("no such factorisation");
  }
}

SOFTGPU_LAPACK_TYPES(make_orthogonal)

}  // namespace softgpu::libraries
