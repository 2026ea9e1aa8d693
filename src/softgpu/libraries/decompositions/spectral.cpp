// Singular values and eigenvalues. LAPACK works on copies; numbers that are not finite have no spectrum.
#include "softgpu/libraries/decompositions/task.h"

namespace softgpu::libraries {
namespace {

using lapack::by_type;
using lapack::call;
using lapack::with_work;

template <class T>
constexpr Real<T> not_a_number = std::numeric_limits<Real<T>>::quiet_NaN();

template <class T>
void fill(const Matrix<T>& matrix, T value) {
  for (std::int64_t j = 0; j < matrix.columns; ++j) std::fill_n(matrix.column(j), matrix.rows, value);
}

/// Everything but what a triangle leaves out.
bool all(std::int64_t, std::int64_t) {
  return true;
}
auto triangle(bool upper) {
  return [upper](std::int64_t i, std::int64_t j) { return upper ? i <= j : i >= j; };
}

/// A = U · diag(S) · Vᴴ.
template <class N>
struct Singular {
  Own<N> a, u, vt;
  std::vector<Real<N>> s;

  Singular(const Matrix<N>& from, Wanted left, Wanted right)
      : a(from),
        u(left == Wanted::none ? 0 : from.rows, count(left, from.rows, from)),
        vt(count(right, from.columns, from), right == Wanted::none ? 0 : from.columns),
        s(static_cast<std::size_t>(std::min(from.rows, from.columns))) {}

  static std::int64_t count(Wanted wanted, std::int64_t order, const Matrix<N>& from) {
    return wanted == Wanted::none ? 0 : wanted == Wanted::all ? order : std::min(from.rows, from.columns);
  }
  static char letter(Wanted wanted) {
    return wanted == Wanted::none ? 'N' : wanted == Wanted::all ? 'A' : 'S';
  }

  /// Divides and conquers where as many vectors of either side are wanted: the faster way.
  std::int64_t compute(Wanted left, Wanted right) {
    const char of_u = letter(left), of_v = letter(right);
    const auto least = static_cast<std::size_t>(std::min(a->rows, a->columns));
    const auto most = static_cast<std::size_t>(std::max(a->rows, a->columns));
    std::int64_t info = 0;
    if (of_u == of_v) {
      std::vector<std::int64_t> indices(8 * least);
      std::vector<Real<N>> real(std::is_arithmetic_v<N> ? 0
                                : of_u == 'N' ? 7 * least
                                              : least * std::max(5 * least + 7, 2 * most + 2 * least + 1));
      with_work<N>([&](N* work, std::int64_t size) {
        if constexpr (std::is_arithmetic_v<N>) {
          call<N>("gesdd", of_u, a->rows, a->columns, a->data, a->leading, s.data(), u->data, u->leading,
                  vt->data, vt->leading, work, size, indices.data(), &info);
        } else {
          call<N>("gesdd", of_u, a->rows, a->columns, a->data, a->leading, s.data(), u->data, u->leading,
                  vt->data, vt->leading, work, size, real.data(), indices.data(), &info);
        }
      });
      return info;
    }
    std::vector<Real<N>> real(5 * least);
    with_work<N>([&](N* work, std::int64_t size) {
      if constexpr (std::is_arithmetic_v<N>) {
        call<N>("gesvd", of_u, of_v, a->rows, a->columns, a->data, a->leading, s.data(), u->data, u->leading,
                vt->data, vt->leading, work, size, &info);
      } else {
        call<N>("gesvd", of_u, of_v, a->rows, a->columns, a->data, a->leading, s.data(), u->data, u->leading,
                vt->data, vt->leading, work, size, real.data(), &info);
      }
    });
    return info;
  }
};

template <class N>
std::int64_t singular(const Task<N>& task) {
  const Decomposition& op = task.op;
  const auto a = task.matrix(op.a, op.m, op.n, "A");
  const std::int64_t order = std::min(a.rows, a.columns);
  // The largest ones are first; `k` says how many of them are kept.
  const std::int64_t kept = op.k == 0 ? order : std::min(op.k, order);
  const auto wanted = [&](Wanted which, std::int64_t all_of_them) {
    return which == Wanted::all ? all_of_them : kept;
  };
  auto* const values = task.template vector<Real<N>>(op.values, kept, "the singular values");
  Matrix<N> u{}, v{};
  if (op.left == Wanted::in_place) u = {a.data, a.rows, kept, a.leading};
  if (op.left == Wanted::first || op.left == Wanted::all)
    u = task.matrix(op.b, a.rows, wanted(op.left, a.rows), "U");
  const std::int64_t of_v = wanted(op.right_ones, a.columns);
  if (op.right_ones == Wanted::in_place) {
    if (!op.transposed_c || op.left == Wanted::in_place) wrong("one place has vectors of one side");
    v = {a.data, kept, a.columns, a.leading};
  }
  if (op.right_ones == Wanted::first || op.right_ones == Wanted::all)
    v = op.transposed_c ? task.matrix(op.c, of_v, a.columns, "V") : task.matrix(op.c, a.columns, of_v, "V");
  double* const residual =
      op.residuals == 0 ? nullptr
                        : task.memory.template at<double>(
                              op.residuals + static_cast<std::uint64_t>(task.index) * 8, 1, "the residuals");
  if (order == 0) return 0;

  Singular<N> found(a, op.left, op.right_ones);
  std::int64_t info = order;
  const bool finite = is_finite(a, all);
  if (finite) {
    info = found.compute(op.left, op.right_ones);
  } else {
    std::fill(found.s.begin(), found.s.end(), not_a_number<Real<N>>);
    fill(*found.u, N(not_a_number<N>));
    fill(*found.vt, N(not_a_number<N>));
  }
  std::copy_n(found.s.data(), kept, values);
  if (u.data != nullptr) Own<N>::copy(*found.u, u);
  for (std::int64_t j = 0; v.data != nullptr && j < v.columns; ++j) {
    for (std::int64_t i = 0; i < v.rows; ++i)
      v.at(i, j) = op.transposed_c ? found.vt->at(i, j) : conjugate(found.vt->at(j, i));
  }
  if (residual != nullptr) {
    double squares = 0;
    for (std::int64_t i = kept; i < order; ++i) {
      const double left_out = found.s[static_cast<std::size_t>(i)];
      squares += left_out * left_out;
    }
    *residual = finite ? std::sqrt(squares) : not_a_number<double>;
  }
  return info;
}

/// Calls f(work, size, real work, size, indices, size) twice; the real work is that of complex matrices.
template <class N, class F>
void with_works(F f) {
  N wish{};
  Real<N> real_wish{};
  std::int64_t index_wish = 0;
  f(&wish, std::int64_t{-1}, &real_wish, std::int64_t{-1}, &index_wish, std::int64_t{-1});
  // Single precision rounds large sizes.
  const auto size = static_cast<std::int64_t>(static_cast<double>(std::real(wish)) * 1.000001) + 1;
  const auto real_size = static_cast<std::int64_t>(static_cast<double>(real_wish) * 1.000001) + 1;
  std::vector<N> work(static_cast<std::size_t>(size));
  std::vector<Real<N>> real(static_cast<std::size_t>(real_size));
  std::vector<std::int64_t> indices(static_cast<std::size_t>(std::max<std::int64_t>(index_wish, 1)));
  f(work.data(), size, real.data(), real_size, indices.data(), static_cast<std::int64_t>(indices.size()));
}

template <class N>
std::int64_t hermitian(const Task<N>& task) {
  const Decomposition& op = task.op;
  const auto stored = task.matrix(op.a, op.n, op.n, "A");
  auto* const values = task.template vector<Real<N>>(op.values, op.n, "the eigenvalues");
  if (op.n == 0) return 0;
  if (!is_finite(stored, triangle(op.upper))) {
    std::fill_n(values, op.n, not_a_number<Real<N>>);
    if (op.vectors) fill(stored, N(not_a_number<N>));
    return op.n;
  }
  const Own<N> a(stored);
  std::vector<Real<N>> w(static_cast<std::size_t>(op.n));
  const char job = op.vectors ? 'V' : 'N';
  std::int64_t info = 0;
  with_works<N>([&](N* work, std::int64_t size, Real<N>* real, std::int64_t real_size, std::int64_t* indices,
                    std::int64_t index_size) {
    if constexpr (std::is_arithmetic_v<N>) {
      (void)real, (void)real_size;
      call<N>("syevd", job, task.triangle(), a->rows, a->data, a->leading, w.data(), work, size, indices,
              index_size, &info);
    } else {
      call<N>("heevd", job, task.triangle(), a->rows, a->data, a->leading, w.data(), work, size, real,
              real_size, indices, index_size, &info);
    }
  });
  std::copy_n(w.data(), op.n, values);
  if (op.vectors) Own<N>::copy(*a, stored);
  return info;
}

template <class N>
std::int64_t generalized(const Task<N>& task) {
  const Decomposition& op = task.op;
  const auto stored = task.matrix(op.a, op.n, op.n, "A");
  const auto stored_b = task.matrix(op.b, op.n, op.n, "B");
  auto* const values = task.template vector<Real<N>>(op.values, op.n, "the eigenvalues");
  if (op.n == 0) return 0;
  if (!is_finite(stored, triangle(op.upper)) || !is_finite(stored_b, triangle(op.upper))) {
    std::fill_n(values, op.n, not_a_number<Real<N>>);
    if (op.vectors) fill(stored, N(not_a_number<N>));
    return op.n;
  }
  const Own<N> a(stored), b(stored_b);
  std::vector<Real<N>> w(static_cast<std::size_t>(op.n));
  const std::int64_t problem = op.problem;
  const char job = op.vectors ? 'V' : 'N';
  std::int64_t info = 0;
  with_works<N>([&](N* work, std::int64_t size, Real<N>* real, std::int64_t real_size, std::int64_t* indices,
                    std::int64_t index_size) {
    if constexpr (std::is_arithmetic_v<N>) {
      (void)real, (void)real_size;
      call<N>("sygvd", problem, job, task.triangle(), a->rows, a->data, a->leading, b->data, b->leading,
              w.data(), work, size, indices, index_size, &info);
    } else {
      call<N>("hegvd", problem, job, task.triangle(), a->rows, a->data, a->leading, b->data, b->leading,
              w.data(), work, size, real, real_size, indices, index_size, &info);
    }
  });
  Own<N>::copy(*b, stored_b);
  if (info > op.n) return info;
  std::copy_n(w.data(), op.n, values);
  if (op.vectors) Own<N>::copy(*a, stored);
  return info;
}

/// Eigenvalues of a real matrix as the program wants them: complex ones, or their parts one behind the other.
template <class R>
void write_values(const Task<R>& task, const std::vector<R>& real, const std::vector<R>& imaginary) {
  const auto n = static_cast<std::int64_t>(real.size());
  if (task.op.complex_values) {
    auto* const values = task.template vector<std::complex<R>>(task.op.values, n, "the eigenvalues");
    for (std::size_t i = 0; i < real.size(); ++i) values[i] = {real[i], imaginary[i]};
  } else {
    R* const values = task.template vector<R>(task.op.values, 2 * n, "the eigenvalues");
    std::copy_n(real.data(), n, values);
    std::copy_n(imaginary.data(), n, values + n);
  }
}

template <class N>
std::int64_t general(const Task<N>& task) {
  const Decomposition& op = task.op;
  const auto stored = task.matrix(op.a, op.n, op.n, "A");
  const auto size = static_cast<std::size_t>(op.n);
  Matrix<N> left{}, right{};
  if (op.left_vectors) left = task.matrix(op.b, op.n, op.n, "VL");
  if (op.vectors) right = task.matrix(op.c, op.n, op.n, "VR");
  if (op.n == 0) return 0;
  const Own<N> a(stored);
  const Own<N> vl(op.left_vectors ? op.n : 0, op.n), vr(op.vectors ? op.n : 0, op.n);
  const char of_left = op.left_vectors ? 'V' : 'N', of_right = op.vectors ? 'V' : 'N';
  const bool finite = is_finite(stored, all);
  std::int64_t info = op.n;
  if (!finite) {
    fill(*vl, N(not_a_number<N>));
    fill(*vr, N(not_a_number<N>));
  }
  if constexpr (std::is_arithmetic_v<N>) {
    std::vector<N> real(size, not_a_number<N>), imaginary(size, not_a_number<N>);
    if (finite) {
      with_work<N>([&](N* work, std::int64_t work_size) {
        call<N>("geev", of_left, of_right, a->rows, a->data, a->leading, real.data(), imaginary.data(),
                vl->data, vl->leading, vr->data, vr->leading, work, work_size, &info);
      });
    }
    write_values(task, real, imaginary);
  } else {
    std::vector<N> w(size, N(not_a_number<N>));
    std::vector<Real<N>> real(2 * size);
    if (finite) {
      with_work<N>([&](N* work, std::int64_t work_size) {
        call<N>("geev", of_left, of_right, a->rows, a->data, a->leading, w.data(), vl->data, vl->leading,
                vr->data, vr->leading, work, work_size, real.data(), &info);
      });
    }
    std::copy_n(w.data(), op.n, task.vector(op.values, op.n, "the eigenvalues"));
  }
  if (op.left_vectors) Own<N>::copy(*vl, left);
  if (op.vectors) Own<N>::copy(*vr, right);
  return info;
}

}  // namespace

template <class N>
std::int64_t find_spectrum(const Task<N>& task) {
  switch (task.op.what) {
    case Decomposing::singular:
      return singular(task);
    case Decomposing::hermitian_eigen:
      return hermitian(task);
    case Decomposing::generalized_eigen:
      return generalized(task);
    case Decomposing::general_eigen:
      return general(task);
    default:
      wrong("no such decomposition");
  }
}

SOFTGPU_LAPACK_TYPES(find_spectrum)

}  // namespace softgpu::libraries
