// Indices and vectors by cuSPARSE: each operation is one function.
#include <algorithm>

#include "libraries/operations/sparse.h"
#include "worker/libraries/sparse.h"

namespace gpupool::worker {
namespace {

using operations::Arrange;
using operations::Indexed;
using operations::SparseArrange;
using operations::SparseVector;

struct Sorted {
  int m, n, entries;
  void *first, *second;
};

/// By the older functions; entries' places are sorted with them. `descriptor`: of a matrix in rows, else
/// null.
void sort(SparseLibrary& sparse, const Sorted& of, void* descriptor, std::uint64_t wanted) {
  std::size_t bytes = 0;
  sparse.call(descriptor == nullptr ? "Xcoosort_bufferSizeExt" : "Xcsrsort_bufferSizeExt", of.m, of.n,
              of.entries, of.first, of.second, &bytes);
  const Workspace buffer = sparse.workspace(bytes);
  sparse.require(buffer);
  // The functions want places in any case.
  const Workspace own =
      sparse.workspace(wanted != 0 ? 0 : static_cast<std::size_t>(of.entries) * sizeof(int));
  sparse.require(own);
  void* const places = wanted != 0 ? pointer<void>(wanted) : own.address();
  if (wanted == 0 && of.entries != 0) sparse.call("CreateIdentityPermutation", of.entries, places);
  if (descriptor == nullptr) {
    sparse.call("XcoosortByRow", of.m, of.n, of.entries, of.first, of.second, places, buffer.address());
  } else {
    sparse.call("Xcsrsort", of.m, of.n, of.entries, descriptor, of.first, of.second, places,
                buffer.address());
  }
}

}  // namespace

CUresult run(const Execution& x, const SparseArrange& of) {
  SparseLibrary sparse(x);
  const int m = sparse.narrow(of.m), n = sparse.narrow(of.n), entries = sparse.narrow(of.entries);
  auto *const rows = pointer<void>(of.rows), *const columns = pointer<void>(of.columns),
              *const to = pointer<void>(of.to);
  const int base = of.base;
  switch (of.what) {
    case Arrange::compress:
      sparse.call("Xcoo2csr", rows, entries, m, to, base);
      break;
    case Arrange::expand:
      sparse.call("Xcsr2coo", rows, entries, m, to, base);
      break;
    case Arrange::sort: {
      // Also by columns, which are called rows then: both sizes are those of the larger side.
      const int side = std::max(m, n);
      sort(sparse, {side, side, entries, rows, columns}, nullptr, of.to);
      break;
    }
    case Arrange::sort_rows:
      sort(sparse, {m, n, entries, rows, columns}, sparse.older(of.base), of.to);
      break;
    case Arrange::identity:
      sparse.call("CreateIdentityPermutation", entries, to);
      break;
    case Arrange::transpose: {
      constexpr int algorithm = 1;  // the default
      const int action = of.to_values != 0 ? 1 : 0;
      sparse.with_buffer("Csr2cscEx2_bufferSize", "Csr2cscEx2", m, n, entries, pointer<void>(of.values), rows,
                         columns, pointer<void>(of.to_values), to, pointer<void>(of.to_columns),
                         static_cast<int>(of.type), action, base, algorithm);
      break;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return sparse.result();
}

CUresult run(const Execution& x, const SparseVector& of) {
  SparseLibrary sparse(x);
  void* const sparse_one = sparse.make(
      "CreateSpVec", "DestroySpVec", of.size, of.entries, pointer<void>(of.indices), pointer<void>(of.x),
      static_cast<int>(of.index_type), int{of.base}, static_cast<int>(of.x_type));
  void* const dense_one =
      sparse.make("CreateDnVec", "DestroyDnVec", of.size, pointer<void>(of.y), static_cast<int>(of.y_type));
  switch (of.what) {
    case Indexed::gather:
      sparse.call("Gather", dense_one, sparse_one);
      break;
    case Indexed::scatter:
      sparse.call("Scatter", sparse_one, dense_one);
      break;
    case Indexed::axpby:
      sparse.factors({&of.alpha, &of.beta}, of.sum);
      sparse.call("Axpby", place_of(of.alpha), sparse_one, place_of(of.beta), dense_one);
      break;
    case Indexed::rotate:
      sparse.factors({&of.alpha, &of.beta}, of.sum);
      sparse.call("Rot", place_of(of.alpha), place_of(of.beta), sparse_one, dense_one);
      break;
    case Indexed::dot: {
      if (of.result_type != of.sum) sparse.fail(SparseLibrary::not_supported);
      sparse.scalars_on_device(true);  // where the result goes
      const int op = of.conjugated != 0 ? SparseLibrary::conjugated : SparseLibrary::plain;
      sparse.with_buffer("SpVV_bufferSize", "SpVV", op, sparse_one, dense_one, pointer<void>(of.result),
                         static_cast<int>(of.sum));
      break;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return sparse.result();
}

}  // namespace gpupool::worker
