// Solutions of banded systems: elimination of rows, which are exchanged so that pivots are as large as can
// be.
#include "libraries/operations/bands.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/operations.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Banded;
using gpupool::operations::Bands;

/// A matrix of one system: row i has the columns from i - width to i + 2 · width, since exchanged rows bring
/// some from beyond the band.
template <class N>
class BandMatrix {
 public:
  BandMatrix(std::int64_t rows, std::int64_t width)
      : rows_(rows),
        width_(width),
        stored_(3 * width + 1),
        values_(static_cast<std::size_t>(rows * stored_)) {}

  [[nodiscard]] N& at(std::int64_t row, std::int64_t column) {
    return values_[static_cast<std::size_t>(row * stored_ + column - row + width_)];
  }
  void clear() { std::fill(values_.begin(), values_.end(), N(0)); }

  /// The right-hand sides, each of them `rows` numbers that lie together, become the solutions. The matrix is
  /// used up.
  void solve(std::int64_t count, N* sides) {
    for (std::int64_t k = 0; k < rows_; ++k) {
      const std::int64_t last = std::min(k + width_, rows_ - 1), reach = std::min(k + 2 * width_, rows_ - 1);
      std::int64_t pivot = k;
      for (std::int64_t i = k + 1; i <= last; ++i) {
        if (std::abs(at(i, k)) > std::abs(at(pivot, k))) pivot = i;
      }
      if (pivot != k) {
        for (std::int64_t j = k; j <= reach; ++j) std::swap(at(k, j), at(pivot, j));
        for (std::int64_t s = 0; s < count; ++s) std::swap(sides[s * rows_ + k], sides[s * rows_ + pivot]);
      }
      for (std::int64_t i = k + 1; i <= last; ++i) {
        const N factor = at(i, k) / at(k, k);
        if (factor == N(0)) continue;
        for (std::int64_t j = k + 1; j <= reach; ++j) at(i, j) -= factor * at(k, j);
        for (std::int64_t s = 0; s < count; ++s) sides[s * rows_ + i] -= factor * sides[s * rows_ + k];
      }
    }
    for (std::int64_t k = rows_; k-- > 0;) {
      const std::int64_t reach = std::min(k + 2 * width_, rows_ - 1);
      for (std::int64_t s = 0; s < count; ++s) {
        N sum = sides[s * rows_ + k];
        for (std::int64_t j = k + 1; j <= reach; ++j) sum -= at(k, j) * sides[s * rows_ + j];
        sides[s * rows_ + k] = sum / at(k, k);
      }
    }
  }

 private:
  const std::int64_t rows_, width_, stored_;
  std::vector<N> values_;
};

/// T: elements of memory; N: what is computed with.
template <class T, class N>
class BandSolver {
 public:
  explicit BandSolver(const Bands& op)
      : op_(op), width_(op.diagonals[0] != 0 || op.diagonals[4] != 0 ? 2 : 1), matrix_(op.m, width_) {}

  void solve(std::int64_t from, std::int64_t to) {
    const bool one_matrix = op_.how <= Banded::as_it_is;
    const std::int64_t at_once = one_matrix ? to - from : 1;
    sides_.resize(static_cast<std::size_t>(at_once * op_.m));
    for (std::int64_t first = from; first < to; first += at_once) {
      read_matrix(one_matrix ? 0 : first);
      for (std::int64_t s = 0; s < at_once; ++s)
        each(first + s, [&](T& stored, std::int64_t i) {
          sides_[static_cast<std::size_t>(s * op_.m + i)] = to_number<N>(stored);
        });
      matrix_.solve(at_once, sides_.data());
      for (std::int64_t s = 0; s < at_once; ++s)
        each(first + s, [&](T& stored, std::int64_t i) {
          stored = to_element<T>(sides_[static_cast<std::size_t>(s * op_.m + i)]);
        });
    }
  }

 private:
  [[nodiscard]] std::int64_t place(std::int64_t system, std::int64_t row) const {
    return op_.how == Banded::interleaved ? row * op_.batch + system : system * op_.stride + row;
  }
  void read_matrix(std::int64_t system) {
    matrix_.clear();
    for (std::int64_t d = 0; d < Bands::most_diagonals; ++d) {
      if (op_.diagonals[d] == 0) continue;
      const T* const values = reinterpret_cast<const T*>(op_.diagonals[d]);
      const std::int64_t beside = d - Bands::main;
      for (std::int64_t i = std::max<std::int64_t>(0, -beside); i < op_.m - std::max<std::int64_t>(0, beside);
           ++i)
        matrix_.at(i, i + beside) = to_number<N>(values[place(system, i)]);
    }
  }
  /// f(element, row) for the right-hand side of a solution.
  template <class F>
  void each(std::int64_t solution, F f) {
    T* const values = reinterpret_cast<T*>(op_.b);
    for (std::int64_t i = 0; i < op_.m; ++i)
      f(values[op_.how <= Banded::as_it_is ? solution * op_.ldb + i : place(solution, i)], i);
  }

  const Bands& op_;
  const std::int64_t width_;
  BandMatrix<N> matrix_;
  std::vector<N> sides_;
};

void check_bands(const Bands& op, const Memory& memory) {
  const std::size_t bytes = bytes_of(op.type);
  const auto check = [&](std::uint64_t address, const char* what) {
    if (op.how == Banded::interleaved) {
      memory.check_rows(address, op.batch, op.m, op.batch, bytes, what);
    } else {
      memory.check_rows(address, op.m, op.batch, op.stride, bytes, what);
    }
  };
  for (const std::uint64_t diagonal : op.diagonals) {
    if (diagonal != 0) check(diagonal, "a diagonal");
  }
  if (op.diagonals[Bands::main] == 0)
    throw Failure(softgpu::Fault::illegal_address, "a banded matrix without its main diagonal");
  if (op.how <= Banded::as_it_is) {
    memory.check_rows(op.b, op.m, op.n, op.ldb, bytes, "the right-hand sides");
  } else {
    check(op.b, "the right-hand sides");
  }
}

}  // namespace

void run(const Bands& op, const Parts& parts, const Memory& memory) {
  if (op.type != Element::f32 && op.type != Element::f64 && op.type != Element::c32 &&
      op.type != Element::c64)
    throw Failure(softgpu::Fault::illegal_instruction, "a type that bands are not of");
  parts.each(op.parts(), [&](std::uint64_t part) {
    if (op.m == 0) return;
    check_bands(op, memory);
    const std::int64_t from = static_cast<std::int64_t>(part) * op.solutions_of_part();
    const std::int64_t to = std::min(from + op.solutions_of_part(), op.solutions());
    with_type(op.type, [&](auto element) {
      using T = decltype(element);
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
        BandSolver<T, double>(op).solve(from, to);
      } else if constexpr (std::is_same_v<T, std::complex<float>> ||
                           std::is_same_v<T, std::complex<double>>) {
        BandSolver<T, std::complex<double>>(op).solve(from, to);
      }
    });
  });
}

}  // namespace softgpu::libraries
