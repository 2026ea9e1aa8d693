// The older functions for matrices of square blocks (BSR): products and solutions, by the same operations.
#include <cstdint>

#include "libraries/cusparse/calls.h"
#include "libraries/cusparse/descriptors.h"

namespace gpupool::cusparse {
namespace {

using operations::SparseProduct;
using operations::SparseSolve;

/// bsrsv2Info_t and bsrsm2Info_t.
struct Plan : Marked<0x62737232> {
  std::uint64_t zero_pivot = 0;  // in the program's buffer
};

/// What a buffer is needed for: the number of a row without a pivot.
constexpr int buffer_bytes = 16;

/// `columns`: of blocks. A matrix that is said to be triangular is one, whatever else is stored.
Status describe(const Types& types, const Call& call, std::int64_t columns, Sparse& made) {
  const MatDescr* const descriptor = known<MatDescr>(call.descr_a);
  const bool fits = descriptor != nullptr && call.m >= 0 && columns >= 0 && call.nnz_a >= 0 &&
                    call.block > 0 && call.block <= 1 << 20 && (call.direction == 0 || call.direction == 1) &&
                    is_transposition(call.trans);
  if (!fits) return invalid_value;
  if (descriptor->type != 0) return matrix_type_not_supported;
  made.rows = call.m * call.block;
  made.columns = columns * call.block;
  made.entries = call.nnz_a;
  made.block_rows = made.block_columns = call.block;
  made.blocks_by_column = call.direction == 1;
  made.offsets = address(call.rows_a);
  made.indices = address(call.columns_a);
  made.values = address(call.values_a);
  made.type = types.element;
  made.base = static_cast<std::uint8_t>(descriptor->base);
  made.turned = call.trans != plain;
  made.conjugated = call.trans == conjugated;
  return success;
}

View columns_at(const void* values, std::int64_t leading, Element type, bool turned = false) {
  View view;
  view.address = address(values);
  view.row = turned ? leading : 1;
  view.column = turned ? 1 : leading;
  view.type = type;
  return view;
}

Status triangle(const Types& types, const Call& call, SparseSolve& made) {
  if (const Status bad = describe(types, call, call.m, made.a); bad != success) return bad;
  const MatDescr& descriptor = *known<MatDescr>(call.descr_a);
  made.upper = descriptor.fill != 0;
  made.unit = descriptor.diagonal != 0;
  made.sum = types.element;
  return success;
}

}  // namespace

int block_product(Handle& handle, const Types& types, const Call& call) {
  SparseProduct made;
  if (call.alpha == nullptr || call.beta == nullptr) return invalid_value;
  // Of a product with a matrix m × k blocks are A's, with a vector m × n.
  const bool with_vector = call.x != nullptr || call.y != nullptr;
  if (const Status bad = describe(types, call, with_vector ? call.n : call.k, made.a); bad != success)
    return bad;
  const std::int64_t m = made.a.turned ? made.a.columns : made.a.rows,
                     k = made.a.turned ? made.a.rows : made.a.columns;
  if (with_vector) {
    made.n = 1;
    made.b = columns_at(call.x, std::max<std::int64_t>(1, k), types.element);
    made.c = columns_at(call.y, std::max<std::int64_t>(1, m), types.element);
  } else {
    if (call.n < 0 || !is_transposition(call.transb)) return invalid_value;
    if (call.ldb < std::max<std::int64_t>(1, call.transb == plain ? k : call.n) ||
        call.ldc < std::max<std::int64_t>(1, m))
      return invalid_value;
    if (call.trans != plain || call.transb == conjugated) return not_supported;
    made.n = call.n;
    made.b = columns_at(call.b, call.ldb, types.element, call.transb != plain);
    made.c = columns_at(call.c, call.ldc, types.element);
  }
  made.sum = types.element;
  made.alpha = factor(handle, call.alpha, types.element);
  made.beta = factor(handle, call.beta, types.element);
  return m == 0 || made.n == 0 ? success : post(handle, made);
}

int block_solve_size(Handle&, const Types& types, const Call& call) {
  SparseSolve made;
  if (known<Plan>(call.plan) == nullptr || call.bytes == nullptr) return invalid_value;
  *static_cast<int*>(call.bytes) = buffer_bytes;
  return triangle(types, call, made);
}

/// Looks for a row without a pivot: nobody waits for it before it is asked for.
int block_solve_analysis(Handle& handle, const Types& types, const Call& call) {
  SparseSolve made;
  Plan* const plan = known<Plan>(call.plan);
  if (plan == nullptr || call.buffer == nullptr) return invalid_value;
  if (const Status bad = triangle(types, call, made); bad != success) return bad;
  made.zero_pivot = plan->zero_pivot = address(call.buffer);
  return post(handle, made);
}

int block_solve(Handle& handle, const Types& types, const Call& call) {
  SparseSolve made;
  Plan* const plan = known<Plan>(call.plan);
  if (plan == nullptr || plan->zero_pivot == 0 || call.alpha == nullptr || call.buffer == nullptr)
    return invalid_value;
  if (const Status bad = triangle(types, call, made); bad != success) return bad;
  const std::int64_t m = made.a.rows;
  const bool of_vector = call.x != nullptr || call.y != nullptr;
  if (of_vector) {
    made.n = 1;
    made.b = columns_at(call.x, std::max<std::int64_t>(1, m), types.element);
    made.c = columns_at(call.y, std::max<std::int64_t>(1, m), types.element);
  } else {
    if (call.n < 0 || !is_transposition(call.transb)) return invalid_value;
    const std::int64_t least = std::max<std::int64_t>(1, call.transb == plain ? m : call.n);
    if (call.ldb < least || call.ldc < least) return invalid_value;
    if (call.transb == conjugated) return not_supported;
    made.n = call.n;
    made.b = columns_at(call.b, call.ldb, types.element, call.transb != plain);
    made.c = columns_at(call.c, call.ldc, types.element, call.transb != plain);
  }
  made.zero_pivot = plan->zero_pivot = address(call.buffer);
  made.alpha = factor(handle, call.alpha, types.element);
  return m == 0 || made.n == 0 ? success : post(handle, made);
}

}  // namespace gpupool::cusparse

using namespace gpupool::cusparse;

namespace {

int zero_pivot(void* handle, void* plan, int* position) {
  return with_handle(handle, [&](const Handle& found) {
    const Plan* const known_plan = known<Plan>(plan);
    if (known_plan == nullptr || position == nullptr) return invalid_value;
    if (found.pointer_mode == device) return not_supported;
    *position = -1;
    if (known_plan->zero_pivot == 0) return success;
    if (const Status bad = read_back(found, position, known_plan->zero_pivot); bad != success) return bad;
    return *position < 0 ? success : zero_pivot_found;
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseCreateBsrsv2Info(void** plan) {
  return create<Plan>(plan);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDestroyBsrsv2Info(void* plan) {
  return destroy<Plan>(plan);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXbsrsv2_zeroPivot(void* handle, void* plan, int* position) {
  return zero_pivot(handle, plan, position);
}
GPUPOOL_LIBRARY_EXPORT int cusparseCreateBsrsm2Info(void** plan) {
  return create<Plan>(plan);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDestroyBsrsm2Info(void* plan) {
  return destroy<Plan>(plan);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXbsrsm2_zeroPivot(void* handle, void* plan, int* position) {
  return zero_pivot(handle, plan, position);
}
