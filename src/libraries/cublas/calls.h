// One call of a BLAS routine: table.toml says which function takes what, the generator fills a Call, and one
// C++ function for each routine makes an operation of it.
#pragma once

#include <cstdint>

#include "libraries/cublas/handle.h"
#include "libraries/operations/element.h"
#include "libraries/shared/arguments.h"
#include "libraries/shared/export.h"

namespace gpupool::cublas {

using operations::Element;

/// What the letters of a function's name say: of its operands, its results, and its factors.
struct Types {
  Element element = Element::f32, output = Element::f32, scalar = Element::f32;
};

/// The arguments by their names; those that a function does not take are as they are here.
struct Call {
  // The numbers of cublasSideMode_t, cublasFillMode_t, cublasOperation_t and cublasDiagType_t.
  int side = 0, uplo = 0, trans = 0, transa = 0, transb = 0, diag = 0;
  std::int64_t m = 0, n = 0, k = 0, kl = 0, ku = 0, nrhs = 0, batch = 1;
  std::int64_t lda = 1, ldb = 1, ldc = 1, incx = 1, incy = 1;
  std::int64_t stride_a = 0, stride_x = 0, stride_y = 0;
  void *alpha = nullptr, *beta = nullptr, *a = nullptr, *b = nullptr, *c = nullptr, *x = nullptr,
       *y = nullptr;
  void *result = nullptr, *cosine = nullptr, *sine = nullptr, *param = nullptr;
  void *d1 = nullptr, *d2 = nullptr, *x1 = nullptr, *y1 = nullptr;
  void *pivots = nullptr, *info = nullptr, *device_info = nullptr;
  // cudaDataType; -1: the name says it.
  int type_x = -1, type_y = -1, type_a = -1, type_c = -1, type_alpha = -1, type_result = -1, compute = -1;
  // Which of several functions of one routine it is.
  bool wide = false, band = false, packed = false, hermitian = false, conjugated = false, pointers = false;
  bool real_alpha = false, real_beta = false, smallest = false;
};

using Routine = int(Handle& handle, const Types& types, const Call& call);

// Level 1.
Routine axpy, copy, swap, scal, rot, rotm, rotg, rotmg, dot, nrm2, asum, iamax;
// Level 2.
Routine gemv, symv, trmv, trsv, ger, syr, syr2;
// Level 3, and what is like it.
Routine symm, syrk, syr2k, syrkx, trmm, trsm, geam, dgmm, tpttr, trttp;
// Factorisations of batches.
Routine getrf, getrs, getri, matinv, geqrf, gels;

/// With the handle, unless it is none.
inline int run(void* handle, const Types& types, const Call& call, Routine* routine) {
  return guarded([&]() -> int {
    Handle* const found = find(handle);
    return found == nullptr ? not_initialized : routine(*found, types, call);
  });
}

using libraries::address;
using operations::real_of;

/// A factor as the call was given it.
inline operations::Factor factor(const Handle& handle, const void* value, Element type) {
  return libraries::factor(handle.pointer_mode == device, value, type);
}

/// A real factor that the library sets.
inline operations::Factor constant(float value) {
  operations::Factor made;
  __builtin_memcpy(made.value.words, &value, sizeof value);
  return made;
}

}  // namespace gpupool::cublas
