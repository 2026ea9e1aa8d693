// Factorisations of batches: lists of matrices in device memory.
#include "libraries/operations/factors.h"

#include <algorithm>
#include <cstdint>

#include "libraries/cublas/calls.h"
#include "libraries/shared/launch.h"

namespace gpupool::cublas {
namespace {

using operations::Factoring;
using operations::Factors;

Factors operation(Factoring what, const Types& types, const Call& call) {
  Factors made;
  made.what = what;
  made.type = types.element;
  made.a = address(call.a);
  made.b = address(call.b);
  made.lda = call.lda;
  made.ldb = call.ldb;
  made.m = made.n = call.n;
  made.columns = call.nrhs;
  made.batch = call.batch;
  made.pivots = address(call.pivots);
  made.info = address(call.info);
  made.transpose = static_cast<std::uint8_t>(call.trans);
  return made;
}

int post(const Handle& handle, const Factors& operation) {
  if (operation.n == 0 || operation.batch == 0) return success;
  return status_of(libraries::launch(operation, handle.stream));
}

bool leads(std::int64_t leading, std::int64_t rows) {
  return leading >= std::max<std::int64_t>(1, rows);
}

/// A condition, and which argument breaks it, counted as LAPACK counts.
struct Rule {
  bool holds;
  int argument;
};

/// Of the functions that say in host memory which argument is wrong.
int check(void* info, std::initializer_list<Rule> rules) {
  if (info == nullptr) return invalid_value;
  int& into = *static_cast<int*>(info);
  into = 0;
  for (const Rule& rule : rules) {
    if (rule.holds) continue;
    into = -rule.argument;
    return invalid_value;
  }
  return success;
}

/// `own`: the type of what is made of A.
int make(const Handle& handle, const Types& types, const Call& call, Factoring what) {
  if (call.n < 0 || call.batch < 0 || !leads(call.lda, call.n) ||
      !leads(call.ldb, what == Factoring::lu ? 1 : call.n))
    return invalid_value;
  return post(handle, operation(what, types, call));
}

}  // namespace

int getrf(Handle& handle, const Types& types, const Call& call) {
  return make(handle, types, call, Factoring::lu);
}
int getri(Handle& handle, const Types& types, const Call& call) {
  return make(handle, types, call, Factoring::lu_inverse);
}
int matinv(Handle& handle, const Types& types, const Call& call) {
  constexpr std::int64_t largest = 32;  // as documented
  if (call.n > largest) return invalid_value;
  return make(handle, types, call, Factoring::inverse);
}

int getrs(Handle& handle, const Types& types, const Call& call) {
  const int bad = check(call.info, {{call.trans >= 0 && call.trans <= 2, 1},
                                    {call.n >= 0, 2},
                                    {call.nrhs >= 0, 3},
                                    {leads(call.lda, call.n), 5},
                                    {leads(call.ldb, call.n), 8},
                                    {call.batch >= 0, 10}});
  if (bad != success) return bad;
  if (call.nrhs == 0) return success;
  Factors made = operation(Factoring::lu_solve, types, call);
  made.info = 0;
  return post(handle, made);
}

int geqrf(Handle& handle, const Types& types, const Call& call) {
  const int bad = check(
      call.info, {{call.m >= 0, 1}, {call.n >= 0, 2}, {leads(call.lda, call.m), 4}, {call.batch >= 0, 7}});
  if (bad != success) return bad;
  if (call.m == 0) return success;
  Factors made = operation(Factoring::qr, types, call);
  made.m = call.m;
  made.info = 0;
  return post(handle, made);
}

int gels(Handle& handle, const Types& types, const Call& call) {
  const int bad = check(call.info, {{call.trans >= 0 && call.trans <= 2, 1},
                                    {call.m >= 0, 2},
                                    {call.n >= 0, 3},
                                    {call.nrhs >= 0, 4},
                                    {leads(call.lda, call.m), 6},
                                    {leads(call.ldb, call.m), 8},
                                    {call.batch >= 0, 11}});
  if (bad != success) return bad;
  if (call.trans != 0 || call.m < call.n) return not_supported;
  Factors made = operation(Factoring::least_squares, types, call);
  made.m = call.m;
  made.info = address(call.device_info);
  return post(handle, made);
}

}  // namespace gpupool::cublas
