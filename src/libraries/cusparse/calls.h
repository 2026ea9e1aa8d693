// One call of an older function: table.toml says which function takes what, the generator fills a Call, and
// one C++ function for each routine makes an operation of it.
#pragma once

#include <cstdint>

#include "libraries/cusparse/handle.h"

namespace gpupool::cusparse {

/// What the letter of a function's name says.
struct Types {
  Element element = Element::f32, output = Element::f32, scalar = Element::f32;
};

/// The arguments by their names; those that a function does not take are as they are here.
struct Call {
  // The numbers of cusparseDirection_t, cusparseOperation_t and cusparseSolvePolicy_t.
  int direction = 0, trans = 0, transb = 0, policy = 0;
  std::int64_t m = 0, n = 0, k = 0, ldb = 1, ldc = 1;
  int nnz_a = 0, nnz_b = 0, block = 1;
  std::int64_t batch = 1;
  int batch_stride = 0, algorithm = 0;
  bool pivots = false, pentadiagonal = false;
  void *alpha = nullptr, *beta = nullptr;
  void *descr_a = nullptr, *descr_b = nullptr, *descr_c = nullptr;
  void *values_a = nullptr, *rows_a = nullptr, *columns_a = nullptr;
  void *values_b = nullptr, *rows_b = nullptr, *columns_b = nullptr;
  void *values_c = nullptr, *rows_c = nullptr, *columns_c = nullptr;
  void *x = nullptr, *y = nullptr, *b = nullptr, *c = nullptr;
  void *ds = nullptr, *dl = nullptr, *d = nullptr, *du = nullptr, *dw = nullptr;  // from below to above
  void *plan = nullptr, *buffer = nullptr, *bytes = nullptr;
};

using Routine = int(Handle& handle, const Types& types, const Call& call);

Routine geam_size, geam, block_product, block_solve_size, block_solve_analysis, block_solve;
Routine bands_size, bands, strided_bands_size, strided_bands, interleaved_bands_size, interleaved_bands;

/// With the handle, unless it is none.
inline int run(void* handle, const Types& types, const Call& call, Routine* routine) {
  return with_handle(handle, [&](Handle& found) { return routine(found, types, call); });
}

}  // namespace gpupool::cusparse
