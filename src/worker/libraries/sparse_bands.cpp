// Banded systems by cuSPARSE.
#include "libraries/operations/bands.h"
#include "worker/libraries/sparse.h"

namespace gpupool::worker {

using operations::Banded;
using operations::Bands;

CUresult run(const Execution& x, const Bands& of) {
  const auto letter = letter_of(of.type);
  if (!letter) return CUDA_ERROR_INVALID_VALUE;
  SparseLibrary sparse(x);
  const auto at = [&](int diagonal) { return pointer<void>(of.diagonals[diagonal]); };
  void *const far_below = at(0), *const below = at(1), *const main = at(2), *const above = at(3),
              *const far_above = at(4), *const b = pointer<void>(of.b);
  const int m = sparse.narrow(of.m), n = sparse.narrow(of.n), ldb = sparse.narrow(of.ldb),
            batch = sparse.narrow(of.batch), stride = sparse.narrow(of.stride), algorithm = int{of.algorithm};
  const std::string name = std::string(1, *letter) + (far_below != nullptr ? "gpsv" : "gtsv");
  switch (of.how) {
    case Banded::pivoting:
    case Banded::as_it_is: {
      const std::string whole = name + (of.how == Banded::pivoting ? "2" : "2_nopivot");
      sparse.with_buffer(whole + "_bufferSizeExt", whole, m, n, below, main, above, b, ldb);
      break;
    }
    case Banded::strided: {
      const std::string whole = name + "2StridedBatch";
      sparse.with_buffer(whole + "_bufferSizeExt", whole, m, below, main, above, b, batch, stride);
      break;
    }
    case Banded::interleaved: {
      const std::string whole = name + "InterleavedBatch", ask = whole + "_bufferSizeExt";
      if (far_below != nullptr) {
        sparse.with_buffer(ask, whole, algorithm, m, far_below, below, main, above, far_above, b, batch);
      } else {
        sparse.with_buffer(ask, whole, algorithm, m, below, main, above, b, batch);
      }
    }
  }
  return sparse.result();
}

}  // namespace gpupool::worker
