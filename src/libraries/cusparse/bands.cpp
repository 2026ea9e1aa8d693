// Systems of equations with bands: gtsv2 and its kin, whose buffers are of no size.
#include "libraries/operations/bands.h"

#include <algorithm>
#include <cstdint>

#include "libraries/cusparse/calls.h"

namespace gpupool::cusparse {
namespace {

using operations::Banded;
using operations::Bands;

/// The diagonals that such a function takes must all be there.
Status describe(const Types& types, const Call& call, Bands& made) {
  const bool outer = made.how == Banded::interleaved && call.pentadiagonal;
  for (const auto& [place, diagonal] : {std::pair{0, outer ? call.ds : nullptr},
                                        {1, call.dl},
                                        {2, call.d},
                                        {3, call.du},
                                        {4, outer ? call.dw : nullptr}}) {
    const bool wanted = outer || (place > 0 && place < Bands::most_diagonals - 1);
    if (wanted && diagonal == nullptr && call.m > 0) return invalid_value;
    made.diagonals[place] = address(diagonal);
  }
  made.m = call.m;
  made.type = types.element;
  return success;
}

/// One matrix of at least three rows and n columns of right-hand sides.
Status of_columns(const Types& types, const Call& call, Bands& made) {
  constexpr std::int64_t least = 3;
  if (call.m < least || call.n < 0 || call.ldb < call.m || (call.b == nullptr && call.n > 0))
    return invalid_value;
  made.how = call.pivots ? Banded::pivoting : Banded::as_it_is;
  made.b = address(call.b);
  made.n = call.n;
  made.ldb = call.ldb;
  return describe(types, call, made);
}

Status of_strided(const Types& types, const Call& call, Bands& made) {
  constexpr std::int64_t least = 3;
  if (call.m < least || call.batch < 0 || call.batch_stride < call.m || call.x == nullptr)
    return invalid_value;
  made.how = Banded::strided;
  made.b = address(call.x);
  made.batch = call.batch;
  made.stride = call.batch_stride;
  return describe(types, call, made);
}

Status of_interleaved(const Types& types, const Call& call, Bands& made) {
  // cuThomas, LU and QR; five diagonals are solved by QR alone.
  const int algorithms = call.pentadiagonal ? 1 : 3;
  if (call.m < 0 || call.batch < 0 || call.algorithm < 0 || call.algorithm >= algorithms ||
      (call.x == nullptr && call.m > 0))
    return invalid_value;
  made.how = Banded::interleaved;
  made.b = address(call.x);
  made.batch = call.batch;
  made.algorithm = static_cast<std::uint8_t>(call.algorithm);
  return describe(types, call, made);
}

using Describe = Status(const Types& types, const Call& call, Bands& made);

int size(const Types& types, const Call& call, Describe* describe_call) {
  Bands made;
  if (call.bytes == nullptr) return invalid_value;
  *static_cast<std::size_t*>(call.bytes) = 0;
  return describe_call(types, call, made);
}
int solve(const Handle& handle, const Types& types, const Call& call, Describe* describe_call) {
  Bands made;
  if (const Status bad = describe_call(types, call, made); bad != success) return bad;
  return made.m == 0 || made.parts() == 0 ? success : post(handle, made);
}

}  // namespace

int bands_size(Handle&, const Types& types, const Call& call) {
  return size(types, call, of_columns);
}
int bands(Handle& handle, const Types& types, const Call& call) {
  return solve(handle, types, call, of_columns);
}
int strided_bands_size(Handle&, const Types& types, const Call& call) {
  return size(types, call, of_strided);
}
int strided_bands(Handle& handle, const Types& types, const Call& call) {
  return solve(handle, types, call, of_strided);
}
int interleaved_bands_size(Handle&, const Types& types, const Call& call) {
  return size(types, call, of_interleaved);
}
int interleaved_bands(Handle& handle, const Types& types, const Call& call) {
  return solve(handle, types, call, of_interleaved);
}

}  // namespace gpupool::cusparse
