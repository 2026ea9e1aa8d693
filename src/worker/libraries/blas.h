// cuBLAS, ready for one operation.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "worker/libraries/execution.h"

namespace gpupool::worker {

/// cublasStatus_t as a result of the driver.
CUresult result_of_cublas(int status);

/// The handle of the context on the operation's stream; then calls, of which the first that fails says what
/// came of all.
class Blas {
 public:
  Blas(const Execution& x, bool scalars_on_device);

  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] CUresult result() const { return result_of_cublas(status_); }

  /// The handle comes before the arguments.
  template <class... A>
  void call(const std::string& name, A... arguments) {
    if (status_ == 0) status_ = x_.libraries.cublas.call(name, x_.state.cublas, arguments...);
  }

 private:
  const Execution& x_;
  int status_ = 0;
};

/// The letter of a type in the names of BLAS; none: it has no functions.
constexpr std::optional<char> letter_of(operations::Element type) {
  switch (type) {
    case operations::Element::f32:
      return 'S';
    case operations::Element::f64:
      return 'D';
    case operations::Element::c32:
      return 'C';
    case operations::Element::c64:
      return 'Z';
    default:
      return std::nullopt;
  }
}

/// "cublas" + the letter + `routine`.
inline std::string blas_name(char letter, const char* routine) {
  return std::string("cublas") + letter + routine;
}

/// cublasSideMode_t.
constexpr int side_of(bool on_left) {
  return on_left ? 0 : 1;
}

/// Where a factor is.
inline const void* place_of(const operations::Factor& factor) {
  return factor.on_device ? pointer<const void>(factor.value.words[0]) : factor.value.words;
}

/// A view as BLAS takes a matrix: its address, how it is transposed, and its leading dimension. Vectors are
/// taken by `VectorArgument`.
struct MatrixArgument {
  const void* address;
  std::int64_t leading;
  std::int64_t stride;
  int transposed;  // cublasOperation_t
  int uplo;        // cublasFillMode_t of the matrix before it is transposed
  int unit;        // cublasDiagType_t
};
/// None: BLAS cannot say it. `rows`, `columns`: of the view.
std::optional<MatrixArgument> matrix_argument(const operations::View& view, std::int64_t rows,
                                              std::int64_t columns);

/// How a view is stored.
enum class Storage { full, triangle, band, packed };
Storage storage_of(const operations::View& view);

/// Views that BLAS's functions call vectors: their columns have no distance.
inline bool is_vector(const operations::View& view) {
  return view.column == 0 && view.packed == operations::Packed::no &&
         view.below == operations::all_diagonals && view.above == operations::all_diagonals;
}

}  // namespace gpupool::worker
