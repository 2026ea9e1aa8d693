#include "worker/libraries/blas.h"

#include <algorithm>

namespace gpupool::worker {

using operations::all_diagonals;
using operations::Packed;
using operations::View;

CUresult result_of_cublas(int status) {
  switch (status) {
    case 0:
      return CUDA_SUCCESS;
    case 3:  // ALLOC_FAILED
      return CUDA_ERROR_OUT_OF_MEMORY;
    case 7:  // INVALID_VALUE
      return CUDA_ERROR_INVALID_VALUE;
    case 1:  // NOT_INITIALIZED: it did not start; ARCH_MISMATCH, NOT_SUPPORTED
    case 8:
    case 15:
    case Library::missing:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

Blas::Blas(const Execution& x, bool scalars_on_device) : x_(x) {
  Library& library = x.libraries.cublas;
  if (x.state.cublas == nullptr) {
    const Preparation::Scope preparing(x.libraries.preparation);
    status_ = library.call("cublasCreate_v2", &x.state.cublas);
  }
  call("cublasSetStream_v2", x.stream);
  call("cublasSetPointerMode_v2", scalars_on_device ? 1 : 0);
}

Storage storage_of(const View& view) {
  if (view.packed != Packed::no) return Storage::packed;
  const bool above = view.above != all_diagonals, below = view.below != all_diagonals;
  if (!above && !below) return Storage::full;
  return above && below ? Storage::band : Storage::triangle;
}

namespace {

/// Whether a view is one of a matrix in column order that was transposed. Where both readings are the same
/// place in memory, either will do; but a band begins at another place in each.
bool is_turned(const View& view, Storage storage) {
  if (view.conjugated) return true;
  if (storage == Storage::packed) return view.turned != 0;
  if (view.row != 1) return true;
  if (storage != Storage::band || view.column != 1) return false;
  // Before its first column, a band has as many elements as it has diagonals above.
  return view.offset != view.above;
}

}  // namespace

std::optional<MatrixArgument> matrix_argument(const View& view, std::int64_t rows, std::int64_t columns) {
  constexpr int lower = 0, upper = 1;
  const Storage storage = storage_of(view);
  const bool turned = is_turned(view, storage);
  MatrixArgument made{};
  made.address = pointer<const void>(view.address);
  made.stride = view.stride;
  made.transposed = view.conjugated ? 2 : turned ? 1 : 0;
  made.unit = view.unit ? 1 : 0;
  const bool upper_as_seen = storage == Storage::packed ? (view.packed == Packed::upper) : view.below == 0;
  made.uplo = (storage == Storage::packed ? upper_as_seen : upper_as_seen != turned) ? upper : lower;
  if (storage == Storage::packed) return made;
  const std::int64_t along = turned ? view.column : view.row, across = turned ? view.row : view.column;
  const std::int64_t height = turned ? columns : rows, width = turned ? rows : columns;
  if (along != 1 && height > 1) return std::nullopt;
  if (storage == Storage::band) {
    made.leading = across + 1;
    return made;
  }
  if (view.offset != 0) return std::nullopt;
  // One column lies as far from the next as one likes.
  made.leading = width <= 1 ? std::max(across, std::max<std::int64_t>(height, 1)) : across;
  return made;
}

}  // namespace gpupool::worker
