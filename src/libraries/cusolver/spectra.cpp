// Singular values and eigenvalues. There is one way to find them, whatever method a function is named after.
#include "libraries/cusolver/calls.h"
#include "libraries/cusolver/residuals.h"

namespace gpupool::cusolver {
namespace {

using operations::Wanted;

/// False: no such letter.
bool read_wanted(signed char letter, Wanted& wanted) {
  switch (letter) {
    case 'N':
      return wanted = Wanted::none, true;
    case 'S':
      return wanted = Wanted::first, true;
    case 'A':
      return wanted = Wanted::all, true;
    case 'O':
      return wanted = Wanted::in_place, true;
    default:
      return false;
  }
}

bool is_real(int given, Element type) {
  return given < 0 || given == static_cast<int>(real_of(type));
}

/// A setting that was destroyed, or another thing, is none.
template <class T>
bool is_setting(void* object) {
  return object == nullptr || find<T>(object) != nullptr;
}

/// How far matrices of a batch lie apart. Sizes that no memory has become none that it has: the operation
/// ends.
std::int64_t apart(std::int64_t leading, std::int64_t columns) {
  std::int64_t distance = 0;
  return __builtin_mul_overflow(leading, columns, &distance) ? operations::max_size : distance;
}

/// Of both sides, as functions of cuSOLVER's own say it: V, not the adjoint one.
Decomposition both_sides(const Types& types, const Call& call, Wanted wanted) {
  Decomposition made = operation(Decomposing::singular, types, call);
  made.values = placed(call.w, 1, call.stride_s);
  made.b = placed(call.u, call.ldu, call.stride_u);
  made.c = placed(call.v, call.ldv, call.stride_v);
  made.left = made.right_ones = wanted;
  return made;
}

}  // namespace

int gesvd(Handle& handle, const Types& types, const Call& call) {
  Wanted left = Wanted::none, right = Wanted::none;
  const bool letters = read_wanted(call.jobu, left) && read_wanted(call.jobvt, right);
  const bool two_in_place = left == Wanted::in_place && right == Wanted::in_place;
  const std::int64_t rows = right == Wanted::all     ? call.n
                            : right == Wanted::first ? std::min(call.m, call.n)
                                                     : 1;
  // As documented: matrices that are wider than high are not taken.
  if (!valid(call, true,
             {call.m >= 0, call.n >= 0, call.m >= call.n, letters, !two_in_place,
              is_real(call.type_w, element_of(types, call))}))
    return invalid_value;
  const bool u_apart = left == Wanted::first || left == Wanted::all;
  // The question for space of 32 bits names sizes alone.
  if ((call.wide || !call.query) &&
      !(leads(call.lda, call.m) && leads(call.ldu, u_apart ? call.m : 1) && leads(call.ldv, rows)))
    return invalid_value;
  Decomposition made = both_sides(types, call, Wanted::none);
  made.left = left;
  made.right_ones = right;
  made.transposed_c = true;
  return finish(handle, types, call, made);
}

int gesvdj(Handle& handle, const Types& types, const Call& call) {
  // Batches have all vectors of small matrices, as documented.
  constexpr std::int64_t largest = 32;
  const bool wanted = call.jobz == 1;
  if (!valid(
          call, true,
          {is_flag(call.jobz), call.m >= 0, call.n >= 0, leads(call.lda, call.m), call.batch >= 0,
           !wanted || (leads(call.ldu, call.m) && leads(call.ldv, call.n)), is_setting<Jacobi>(call.jacobi),
           !call.all_vectors || (call.m <= largest && call.n <= largest)}))
    return invalid_value;
  const bool all = call.all_vectors || call.econ == 0;
  Decomposition made = both_sides(types, call, wanted ? all ? Wanted::all : Wanted::first : Wanted::none);
  if (call.all_vectors) {
    made.a.stride = apart(call.lda, call.n);
    made.values.stride = std::min(call.m, call.n);
    made.b.stride = apart(call.ldu, call.m);
    made.c.stride = apart(call.ldv, call.n);
  }
  return finish(handle, types, call, made);
}

int gesvda(Handle& handle, const Types& types, const Call& call) {
  const bool wanted = call.jobz == 1;
  if (!valid(call, true,
             {is_flag(call.jobz), call.m >= 0, call.n >= 0, leads(call.lda, call.m), call.batch >= 0,
              call.rank >= 1 || std::min(call.m, call.n) == 0, call.rank <= std::min(call.m, call.n),
              !wanted || (leads(call.ldu, call.m) && leads(call.ldv, call.n))}))
    return invalid_value;
  if (call.stride_a < 0 || call.stride_s < 0 || call.stride_u < 0 || call.stride_v < 0) return invalid_value;
  Decomposition made = both_sides(types, call, wanted ? Wanted::first : Wanted::none);
  made.k = call.rank;
  if (call.query || call.residuals == nullptr || call.batch == 0) return finish(handle, types, call, made);
  return with_residuals(handle, call.batch, static_cast<double*>(call.residuals), [&](CUdeviceptr place) {
    made.residuals = place;
    return finish(handle, types, call, made);
  });
}

int gesvdp(Handle& handle, const Types& types, const Call& call) {
  const bool wanted = call.jobz == 1;
  if (!valid(call, true,
             {is_flag(call.jobz), is_flag(call.econ), call.m >= 0, call.n >= 0, leads(call.lda, call.m),
              is_real(call.type_w, element_of(types, call)), is_setting<Params>(call.params),
              !wanted || (leads(call.ldu, call.m) && leads(call.ldv, call.n))}))
    return invalid_value;
  // How far the matrix was moved so that the method converges: this one needs no such help.
  if (!call.query && call.error != nullptr) *static_cast<double*>(call.error) = 0;
  return finish(
      handle, types, call,
      both_sides(types, call, wanted ? call.econ == 1 ? Wanted::first : Wanted::all : Wanted::none));
}

int syevd(Handle& handle, const Types& types, const Call& call) {
  if (!valid(call, true,
             {is_flag(call.jobz), is_triangle(call.uplo), call.n >= 0, leads(call.lda, call.n),
              call.batch >= 0, is_real(call.type_w, element_of(types, call)), is_setting<Jacobi>(call.jacobi),
              is_setting<Params>(call.params)}))
    return invalid_value;
  Decomposition made = operation(Decomposing::hermitian_eigen, types, call);
  made.a.stride = apart(call.lda, call.n);
  made.values = placed(call.w, 1, call.n);
  made.vectors = call.jobz == 1;
  return finish(handle, types, call, made);
}

int sygvd(Handle& handle, const Types& types, const Call& call) {
  if (!valid(call, true,
             {call.itype >= 1 && call.itype <= 3, is_flag(call.jobz), is_triangle(call.uplo), call.n >= 0,
              leads(call.lda, call.n), leads(call.ldb, call.n), is_setting<Jacobi>(call.jacobi)}))
    return invalid_value;
  Decomposition made = operation(Decomposing::generalized_eigen, types, call);
  made.b = placed(call.b, call.ldb);
  made.values = placed(call.w);
  made.vectors = call.jobz == 1;
  made.problem = static_cast<std::uint8_t>(call.itype);
  return finish(handle, types, call, made);
}

int geev(Handle& handle, const Types& types, const Call& call) {
  const Element type = element_of(types, call);
  const bool complex_values = call.type_w == static_cast<int>(complex_of(type));
  if (!valid(call, true,
             {is_flag(call.jobvl), is_flag(call.jobvr), call.n >= 0, leads(call.lda, call.n),
              leads(call.ldu, call.jobvl == 1 ? call.n : 1), leads(call.ldv, call.jobvr == 1 ? call.n : 1),
              complex_values || call.type_w == static_cast<int>(type), is_setting<Params>(call.params)}))
    return invalid_value;
  Decomposition made = operation(Decomposing::general_eigen, types, call);
  made.values = placed(call.w);
  made.complex_values = complex_values;
  made.b = placed(call.u, call.ldu);
  made.c = placed(call.v, call.ldv);
  made.left_vectors = call.jobvl == 1;
  made.vectors = call.jobvr == 1;
  return finish(handle, types, call, made);
}

}  // namespace gpupool::cusolver
