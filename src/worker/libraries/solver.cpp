// Decompositions of dense matrices by cuSOLVER: by its functions of 64-bit sizes where it has them.
#include "worker/libraries/solver.h"

#include <utility>

#include "libraries/operations/decomposition.h"
#include "worker/libraries/blas.h"

namespace gpupool::worker {
namespace {

using operations::complex_of;
using operations::Decomposing;
using operations::Decomposition;
using operations::Element;
using operations::Placed;
using operations::real_of;
using operations::Wanted;
using std::make_tuple;

int narrow(std::int64_t size) {
  return static_cast<int>(size);
}
int type_of(Element type) {
  return static_cast<int>(type);
}

/// The operation's parts as arguments.
struct SolverArguments {
  const Decomposition& of;
  std::string letter;
  bool complex;
  void *a = pointer<void>(of.a.address), *b = pointer<void>(of.b.address), *c = pointer<void>(of.c.address);
  void *values = pointer<void>(of.values.address), *beside = pointer<void>(of.beside.address),
       *tau = pointer<void>(of.tau.address), *tau_right = pointer<void>(of.tau_right.address),
       *pivots = pointer<void>(of.pivots);
  int* info = pointer<int>(of.info);
  int uplo = of.upper ? 1 : 0, side = of.right ? 1 : 0, trans = of.transpose, job = of.vectors ? 1 : 0;
  int m = narrow(of.m), n = narrow(of.n), k = narrow(of.k), columns = narrow(of.columns),
      batch = narrow(of.batch);
  int lda = narrow(of.a.leading), ldb = narrow(of.b.leading), ldc = narrow(of.c.leading);
  int type = type_of(of.type), real_type = type_of(real_of(of.type));

  /// Names that have other words for complex numbers.
  [[nodiscard]] std::string by_type(const char* real, const char* of_complex) const {
    return letter + (complex ? of_complex : real);
  }
};

void solve_systems(Solver& solver, const SolverArguments& x) {
  const Decomposition& of = x.of;
  void* const params = solver.params();
  switch (of.what) {
    case Decomposing::cholesky:
      if (of.a.pointers)
        return solver.call(x.letter + "potrfBatched", x.uplo, x.n, x.a, x.lda, x.info, x.batch);
      return solver.compute<true>(
          "Xpotrf", make_tuple(params, x.uplo, of.n, x.type, x.a, of.a.leading, x.type), make_tuple(x.info));
    case Decomposing::cholesky_solve:
      if (of.a.pointers)
        return solver.call(x.letter + "potrsBatched", x.uplo, x.n, x.columns, x.a, x.lda, x.b, x.ldb, x.info,
                           x.batch);
      return solver.call("Xpotrs", params, x.uplo, of.n, of.columns, x.type, x.a, of.a.leading, x.type, x.b,
                         of.b.leading, x.info);
    case Decomposing::cholesky_inverse:
      return solver.compute<false>(x.letter + "potri", make_tuple(x.uplo, x.n, x.a, x.lda),
                                   make_tuple(x.info));
    case Decomposing::lu:
      return solver.compute<true>(
          "Xgetrf", make_tuple(params, of.m, of.n, x.type, x.a, of.a.leading, x.type), std::tuple<>{},
          make_tuple(params, of.m, of.n, x.type, x.a, of.a.leading, x.pivots, x.type), make_tuple(x.info));
    case Decomposing::lu_solve:
      if (of.wide_pivots)
        return solver.call("Xgetrs", params, x.trans, of.n, of.columns, x.type, x.a, of.a.leading, x.pivots,
                           x.type, x.b, of.b.leading, x.info);
      return solver.call(x.letter + "getrs", x.trans, x.n, x.columns, x.a, x.lda, x.pivots, x.b, x.ldb,
                         x.info);
    case Decomposing::ldl:
      return solver.compute<false>(x.letter + "sytrf", make_tuple(x.n, x.a, x.lda), std::tuple<>{},
                                   make_tuple(x.uplo, x.n, x.a, x.lda, x.pivots), make_tuple(x.info));
    case Decomposing::ldl_solve:
      return solver.compute<true>("Xsytrs",
                                  make_tuple(x.uplo, of.n, of.columns, x.type, x.a, of.a.leading, x.pivots,
                                             x.type, x.b, of.b.leading),
                                  make_tuple(x.info));
    case Decomposing::ldl_inverse:
      return solver.compute<false>(x.letter + "sytri", make_tuple(x.uplo, x.n, x.a, x.lda, x.pivots),
                                   make_tuple(x.info));
    case Decomposing::triangle_inverse:
      return solver.compute<true>(
          "Xtrtri", make_tuple(x.uplo, of.unit ? 1 : 0, of.n, x.type, x.a, of.a.leading), make_tuple(x.info));
    case Decomposing::triangle_product:
      return solver.compute<false>(x.letter + "lauum", make_tuple(x.uplo, x.n, x.a, x.lda),
                                   make_tuple(x.info));
    default:
      return solver.call(x.letter + "laswp", x.n, x.a, x.lda, x.k, x.columns, x.pivots,
                         of.right ? -x.m : x.m);
  }
}

/// 32-bit pivots have a function that is not told how much space it has.
void factor_narrow(Solver& solver, const Execution& execution, const SolverArguments& x,
                   std::size_t element_bytes) {
  int elements = 0;
  solver.call(x.letter + "getrf_bufferSize", x.m, x.n, x.a, x.lda, &elements);
  const Workspace work(execution, static_cast<std::size_t>(elements) * element_bytes);
  solver.require(work);
  solver.call(x.letter + "getrf", x.m, x.n, x.a, x.lda, work.address(), x.pivots, x.info);
}

void make_orthogonal(Solver& solver, const SolverArguments& x) {
  const auto info = make_tuple(x.info);
  switch (x.of.what) {
    case Decomposing::qr:
      return solver.compute<true>(
          "Xgeqrf",
          make_tuple(solver.params(), x.of.m, x.of.n, x.type, x.a, x.of.a.leading, x.type, x.tau, x.type),
          info);
    case Decomposing::make_q:
      return solver.compute<false>(x.by_type("orgqr", "ungqr"), make_tuple(x.m, x.n, x.k, x.a, x.lda, x.tau),
                                   info);
    case Decomposing::apply_q:
      return solver.compute<false>(x.by_type("ormqr", "unmqr"),
                                   make_tuple(x.side, x.trans, x.m, x.n, x.k, x.a, x.lda, x.tau, x.c, x.ldc),
                                   info);
    case Decomposing::tridiagonal:
      return solver.compute<false>(x.by_type("sytrd", "hetrd"),
                                   make_tuple(x.uplo, x.n, x.a, x.lda, x.values, x.beside, x.tau), info);
    case Decomposing::tridiagonal_make_q:
      return solver.compute<false>(x.by_type("orgtr", "ungtr"), make_tuple(x.uplo, x.n, x.a, x.lda, x.tau),
                                   info);
    case Decomposing::tridiagonal_apply_q:
      return solver.compute<false>(
          x.by_type("ormtr", "unmtr"),
          make_tuple(x.side, x.uplo, x.trans, x.m, x.n, x.a, x.lda, x.tau, x.c, x.ldc), info);
    case Decomposing::bidiagonal:
      return solver.compute<false>(x.letter + "gebrd", make_tuple(x.m, x.n), std::tuple<>{},
                                   make_tuple(x.m, x.n, x.a, x.lda, x.values, x.beside, x.tau, x.tau_right),
                                   info);
    default:
      return solver.compute<false>(x.by_type("orgbr", "ungbr"),
                                   make_tuple(x.side, x.m, x.n, x.k, x.a, x.lda, x.tau), info);
  }
}

signed char letter_of_wanted(Wanted wanted) {
  constexpr signed char letters[] = {'N', 'S', 'A', 'O'};
  return letters[static_cast<unsigned>(wanted) % 4];
}

/// What singular values leave out: the library says it in host memory.
void largest_singular_values(Solver& solver, const Execution& execution, const SolverArguments& x) {
  const Decomposition& of = x.of;
  const auto stride = [](const Placed& placed) { return static_cast<long long>(placed.stride); };
  // In the host's memory, outside of every share.
  constexpr int most_residuals = 1 << 20;
  if (of.residuals != 0 && x.batch > most_residuals) return solver.note(CUDA_ERROR_NOT_SUPPORTED);
  std::vector<double> residuals(of.residuals == 0 ? 0 : static_cast<std::size_t>(x.batch));
  double* const into = residuals.empty() ? nullptr : residuals.data();
  const auto before =
      make_tuple(of.left == Wanted::none ? 0 : 1, x.k, x.m, x.n, x.a, x.lda, stride(of.a), x.values,
                 stride(of.values), x.b, x.ldb, stride(of.b), x.c, x.ldc, stride(of.c));
  solver.compute<false>(x.letter + "gesvdaStridedBatched", before, make_tuple(x.batch), before,
                        make_tuple(x.info, into, x.batch));
  if (into == nullptr || solver.result() != CUDA_SUCCESS) return;
  solver.note(execution.libraries.api.cuMemcpyHtoDAsync_v2_(
      of.residuals, into, residuals.size() * sizeof(double), execution.stream));
}

void singular_values(Solver& solver, const Execution& execution, const SolverArguments& x) {
  const Decomposition& of = x.of;
  if (of.transposed_c) {
    const auto before = make_tuple(
        solver.params(), letter_of_wanted(of.left), letter_of_wanted(of.right_ones), of.m, of.n, x.type, x.a,
        of.a.leading, x.real_type, x.values, x.type, x.b, of.b.leading, x.type, x.c, of.c.leading, x.type);
    return solver.compute<true>("Xgesvd", before, make_tuple(x.info));
  }
  if (of.k != 0) return largest_singular_values(solver, execution, x);
  void* const jacobi = solver.of_singular_values();
  const int job = of.left == Wanted::none ? 0 : 1;
  if (of.a.stride != 0) {
    const auto before = make_tuple(job, x.m, x.n, x.a, x.lda, x.values, x.b, x.ldb, x.c, x.ldc);
    return solver.compute<false>(x.letter + "gesvdjBatched", before, make_tuple(jacobi, x.batch), before,
                                 make_tuple(x.info, jacobi, x.batch));
  }
  const int econ = of.left == Wanted::first ? 1 : 0;
  const auto before = make_tuple(job, econ, x.m, x.n, x.a, x.lda, x.values, x.b, x.ldb, x.c, x.ldc);
  solver.compute<false>(x.letter + "gesvdj", before, make_tuple(jacobi), before, make_tuple(x.info, jacobi));
}

void eigenvalues(Solver& solver, const SolverArguments& x) {
  const Decomposition& of = x.of;
  if (of.what == Decomposing::generalized_eigen) {
    const int problem = of.problem;
    return solver.compute<false>(x.by_type("sygvd", "hegvd"),
                                 make_tuple(problem, x.job, x.uplo, x.n, x.a, x.lda, x.b, x.ldb, x.values),
                                 make_tuple(x.info));
  }
  if (of.what == Decomposing::general_eigen) {
    const int values_type = of.complex_values ? type_of(complex_of(of.type)) : x.type;
    return solver.compute<true>(
        "Xgeev",
        make_tuple(solver.params(), of.left_vectors ? 1 : 0, x.job, of.n, x.type, x.a, of.a.leading,
                   values_type, x.values, x.type, x.b, of.b.leading, x.type, x.c, of.c.leading, x.type),
        make_tuple(x.info));
  }
  if (x.batch != 1) {
    void* const jacobi = solver.of_eigenvalues();
    const auto before = make_tuple(x.job, x.uplo, x.n, x.a, x.lda, x.values);
    return solver.compute<false>(x.by_type("syevjBatched", "heevjBatched"), before,
                                 make_tuple(jacobi, x.batch), before, make_tuple(x.info, jacobi, x.batch));
  }
  solver.compute<true>("Xsyevd",
                       make_tuple(solver.params(), x.job, x.uplo, of.n, x.type, x.a, of.a.leading,
                                  x.real_type, x.values, x.type),
                       make_tuple(x.info));
}

/// Solvers of two types, here of one twice. How often it refined its solution the client has not asked.
void solve_at_once(Solver& solver, const Execution& execution, const SolverArguments& x) {
  std::size_t bytes = 0;
  int iterations = 0;
  const bool square = x.of.what == Decomposing::system;
  const std::string name = x.letter + x.letter + (square ? "gesv" : "gels");
  const auto call = [&](const std::string& which, auto... last) {
    if (square) {
      solver.call(which, x.n, x.columns, x.a, x.lda, x.pivots, x.b, x.ldb, x.c, x.ldc, last...);
    } else {
      solver.call(which, x.m, x.n, x.columns, x.a, x.lda, x.b, x.ldb, x.c, x.ldc, last...);
    }
  };
  call(name + "_bufferSize", static_cast<void*>(nullptr), &bytes);
  const Workspace work(execution, bytes);
  solver.require(work);
  call(name, work.address(), bytes, &iterations, x.info);
}

}  // namespace

Solver::Solver(const Execution& x, std::size_t element_bytes) : x_(x), element_bytes_(element_bytes) {
  Library& library = x.libraries.cusolver;
  if (x.state.cusolver.handle == nullptr) {
    const Preparation::Scope preparing(x.libraries.preparation);
    status_ = library.call("cusolverDnCreate", &x.state.cusolver.handle);
  }
  call("SetStream", x.stream);
}

CUresult Solver::result() const {
  if (of_driver_ != CUDA_SUCCESS) return of_driver_;
  switch (status_) {
    case 0:
      return CUDA_SUCCESS;
    case alloc_failed:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case 3:  // INVALID_VALUE
      return CUDA_ERROR_INVALID_VALUE;
    case 4:  // ARCH_MISMATCH, NOT_SUPPORTED
    case 9:
    case Library::missing:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

CUresult run(const Execution& x, const Decomposition& of) {
  const auto letter = letter_of(of.type);
  constexpr std::int64_t most = 0x7fffffff;  // most of these functions take no more
  if (!letter) return CUDA_ERROR_NOT_SUPPORTED;
  for (const std::int64_t size :
       {of.m, of.n, of.k, of.columns, of.batch, of.a.leading, of.b.leading, of.c.leading}) {
    if (size < 0 || size > most) return CUDA_ERROR_INVALID_VALUE;
  }
  if (of.what > operations::last_decomposing) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t bytes = operations::bytes_of(of.type);
  Solver solver(x, bytes);
  const SolverArguments arguments{of, std::string(1, *letter), operations::is_complex(of.type)};
  if (of.what == Decomposing::lu && !of.wide_pivots) {
    factor_narrow(solver, x, arguments, bytes);
  } else if (of.what <= Decomposing::exchange) {
    solve_systems(solver, arguments);
  } else if (of.what <= Decomposing::bidiagonal_make_q) {
    make_orthogonal(solver, arguments);
  } else if (of.what == Decomposing::singular) {
    singular_values(solver, x, arguments);
  } else if (of.what <= Decomposing::generalized_eigen) {
    eigenvalues(solver, arguments);
  } else {
    solve_at_once(solver, x, arguments);
  }
  return solver.result();
}

}  // namespace gpupool::worker
