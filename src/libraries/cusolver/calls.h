// One call of a decomposition: table.toml says which function takes what, the generator fills a Call, and one
// C++ function for each routine makes an operation of it, or says how much work space it needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "libraries/cusolver/handle.h"
#include "libraries/operations/decomposition.h"
#include "libraries/shared/arguments.h"
#include "libraries/shared/launch.h"

namespace gpupool::cusolver {

using operations::Decomposing;
using operations::Decomposition;
using operations::Element;

/// What the letter of a function's name says.
struct Types {
  Element element = Element::f32, output = Element::f32, scalar = Element::f32;
};

/// The arguments by their names; those that a function does not take are as they are here.
struct Call {
  // The numbers of cublasFillMode_t, cublasOperation_t, cublasSideMode_t, cublasDiagType_t, cusolverEigMode_t
  // and cusolverEigType_t.
  int uplo = 0, trans = 0, side = 0, diag = 0, jobz = 0, jobvl = 0, jobvr = 0, itype = 1, econ = 0;
  // 'N', 'S', 'A', 'O'.
  signed char jobu = 'N', jobvt = 'N';
  std::int64_t m = 0, n = 0, k = 0, nrhs = 0, batch = 1, rank = 0, k1 = 1, k2 = 0, incx = 1;
  std::int64_t lda = 1, ldb = 1, ldc = 1, ldu = 1, ldv = 1, ldx = 1;
  std::int64_t stride_a = 0, stride_s = 0, stride_u = 0, stride_v = 0;
  void *a = nullptr, *b = nullptr, *c = nullptr, *u = nullptr, *v = nullptr, *x = nullptr;
  void *w = nullptr, *d = nullptr, *e = nullptr, *tau = nullptr, *tauq = nullptr, *taup = nullptr;
  void *pivots = nullptr, *info = nullptr, *work = nullptr, *rwork = nullptr, *host_buffer = nullptr;
  void *residuals = nullptr, *error = nullptr, *iterations = nullptr;  // in host memory
  void *jacobi = nullptr, *params = nullptr;
  std::int64_t lwork = 0;
  std::size_t device_bytes = 0, host_bytes = 0;
  void *size = nullptr, *device_size = nullptr, *host_size = nullptr;  // of questions for work space
  // cudaDataType; -1: the name says it.
  int type_a = -1, type_b = -1, type_w = -1, type_tau = -1, type_u = -1, type_v = -1, compute = -1;
  // Which of several functions of one routine it is.
  bool wide = false, query = false, by_jacobi = false, pointers = false, all_vectors = false;
};

using Routine = int(Handle& handle, const Types& types, const Call& call);

// Systems.
Routine potrf, potrs, potri, getrf, getrs, sytrf, sytrs, sytri, trtri, lauum, laswp, gesv, gels;
// Reflectors.
Routine geqrf, orgqr, ormqr, sytrd, orgtr, ormtr, gebrd, orgbr;
// Spectra.
Routine gesvd, gesvdj, gesvda, gesvdp, syevd, sygvd, geev;

/// With the handle, unless it is none.
inline int run(void* handle, const Types& types, const Call& call, Routine* routine) {
  return guarded([&]() -> int {
    Handle* const found = find<Handle>(handle);
    return found == nullptr ? not_initialized : routine(*found, types, call);
  });
}

using libraries::address;
using operations::complex_of;
using operations::real_of;

/// The type that matrices have, where all types that a call was given fit it.
inline bool fits(const Call& call, Element type) {
  const auto same = [](int given, Element wanted) { return given < 0 || given == static_cast<int>(wanted); };
  const bool known = call.type_a < 0 || type == Element::f32 || type == Element::f64 ||
                     type == Element::c32 || type == Element::c64;
  return known && same(call.type_b, type) && same(call.type_u, type) && same(call.type_v, type) &&
         same(call.type_tau, type) && same(call.compute, type);
}
inline Element element_of(const Types& types, const Call& call) {
  return call.type_a < 0 ? types.element : static_cast<Element>(call.type_a);
}

inline bool is_triangle(int uplo) {
  return uplo == 0 || uplo == 1;
}
inline bool is_flag(int value) {
  return value == 0 || value == 1;
}
inline bool leads(std::int64_t leading, std::int64_t rows) {
  return leading >= std::max<std::int64_t>(1, rows);
}
/// As LAPACK wants it: a real matrix has no other adjoint than the transposed one, a complex one no product
/// with the transposed Q.
inline bool is_adjoint(int trans, Element type) {
  return trans == 0 || trans == (operations::is_complex(type) ? 2 : 1);
}

inline operations::Placed placed(const void* pointer, std::int64_t leading = 1, std::int64_t stride = 0) {
  operations::Placed made;
  made.address = address(pointer);
  made.leading = leading;
  made.stride = stride;
  return made;
}

/// What all routines have in common; A without a stride.
inline Decomposition operation(Decomposing what, const Types& types, const Call& call) {
  Decomposition made;
  made.what = what;
  made.type = element_of(types, call);
  made.upper = call.uplo == 1;
  made.a = placed(call.a, call.lda, call.stride_a);
  made.a.pointers = call.pointers;
  made.m = call.m;
  made.n = call.n;
  made.k = call.k;
  made.batch = call.batch;
  made.pivots = address(call.pivots);
  made.wide_pivots = call.wide;
  made.info = address(call.info);
  return made;
}

/// Answers a question for work space, or posts the operation. None needs space; one element is asked for,
/// since programs take no space for a failure.
inline int finish(const Handle& handle, const Types& types, const Call& call,
                  const Decomposition& operation) {
  if (!fits(call, element_of(types, call))) return invalid_value;
  if (!call.query) return status_of(libraries::launch(operation, handle.stream));
  if (call.wide) {
    if (call.device_size == nullptr || call.host_size == nullptr) return invalid_value;
    *static_cast<std::size_t*>(call.device_size) = operations::bytes_of(operation.type);
    *static_cast<std::size_t*>(call.host_size) = 0;
    return success;
  }
  if (call.size == nullptr) return invalid_value;
  *static_cast<int*>(call.size) = 1;
  return success;
}

/// Whether every rule holds, and what a call that computes was given is as large as was said.
inline bool valid(const Call& call, bool has_space, std::initializer_list<bool> rules) {
  if (!std::all_of(rules.begin(), rules.end(), [](bool rule) { return rule; })) return false;
  return call.query || !has_space || (call.wide ? call.device_bytes > 0 : call.lwork > 0);
}

}  // namespace gpupool::cusolver
