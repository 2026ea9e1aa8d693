// Vectors with few entries beside dense ones: each function is one operation.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "libraries/cusparse/descriptors.h"

using namespace gpupool::cusparse;
using namespace gpupool::operations;

namespace {

/// Both vectors have the same type, which says what is computed in.
Status describe(const void* sparse, const void* dense, SparseVector& made) {
  const SpVec* const x = known<SpVec>(sparse);
  const DnVec* const y = known<DnVec>(dense);
  if (x == nullptr || y == nullptr || x->size != y->size) return invalid_value;
  made.indices = address(x->indices);
  made.index_type = x->index_type;
  made.base = x->base;
  made.x = address(x->values);
  made.y = address(y->values);
  made.size = x->size;
  made.entries = x->entries;
  made.x_type = x->type;
  made.y_type = y->type;
  const bool narrow = x->type == Element::f16 || x->type == Element::bf16;
  made.sum = narrow ? Element::f32 : x->type;
  if (x->type != y->type) return not_supported;
  return check_types(static_cast<int>(made.sum), {});
}

template <class Fill>
int run(void* handle, const void* sparse, const void* dense, Indexed what, bool fits, Fill fill) {
  return with_handle(handle, [&](const Handle& found) {
    SparseVector made;
    made.what = what;
    if (!fits) return invalid_value;
    if (const Status bad = describe(sparse, dense, made); bad != success) return bad;
    if (const Status bad = fill(found, made); bad != success) return bad;
    return made.size == 0 ? success : post(found, made);
  });
}

Status as_it_is(const Handle&, const SparseVector&) {
  return success;
}

auto with_factors(const void* alpha, const void* beta) {
  return [=](const Handle& handle, SparseVector& made) {
    made.alpha = factor(handle, alpha, made.sum);
    made.beta = factor(handle, beta, made.sum);
    return success;
  };
}

/// As large as the largest number.
constexpr std::size_t result_bytes = 16;

Status describe_dot(int op, const void* x, const void* y, const void* result, int compute,
                    SparseVector& made) {
  if (!is_transposition(op) || result == nullptr) return invalid_value;
  if (op == transposed) return not_supported;
  if (const Status bad = describe(x, y, made); bad != success) return bad;
  if (static_cast<int>(made.sum) != compute) return not_supported;
  made.what = Indexed::dot;
  made.conjugated = op == conjugated;
  made.result_type = made.sum;
  return success;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseGather(void* handle, const void* y, void* x) {
  return run(handle, x, y, Indexed::gather, true, as_it_is);
}
GPUPOOL_LIBRARY_EXPORT int cusparseScatter(void* handle, const void* x, void* y) {
  return run(handle, x, y, Indexed::scatter, true, as_it_is);
}
GPUPOOL_LIBRARY_EXPORT int cusparseAxpby(void* handle, const void* alpha, const void* x, const void* beta,
                                         void* y) {
  return run(handle, x, y, Indexed::axpby, alpha != nullptr && beta != nullptr, with_factors(alpha, beta));
}
GPUPOOL_LIBRARY_EXPORT int cusparseRot(void* handle, const void* cosine, const void* sine, void* x, void* y) {
  return run(handle, x, y, Indexed::rotate, cosine != nullptr && sine != nullptr, with_factors(cosine, sine));
}

GPUPOOL_LIBRARY_EXPORT int cusparseSpVV_bufferSize(void* handle, int op, const void* x, const void* y,
                                                   const void* result, int compute, std::size_t* bytes) {
  return with_handle(handle, [&](const Handle&) {
    if (bytes == nullptr) return invalid_value;
    SparseVector made;
    *bytes = result_bytes;
    return describe_dot(op, x, y, result, compute, made);
  });
}
/// A result in host memory comes by the program's buffer: it is what is waited for.
GPUPOOL_LIBRARY_EXPORT int cusparseSpVV(void* handle, int op, const void* x, const void* y, void* result,
                                        int compute, void* buffer) {
  return with_handle(handle, [&](const Handle& found) {
    SparseVector made;
    if (const Status bad = describe_dot(op, x, y, result, compute, made); bad != success) return bad;
    const bool waits = found.pointer_mode == host;
    if (waits && buffer == nullptr) return invalid_value;
    made.result = address(waits ? buffer : result);
    if (const Status bad = post(found, made); bad != success || !waits) return bad;
    std::byte value[result_bytes];
    if (const Status bad = read_back(found, &value, made.result); bad != success) return bad;
    std::memcpy(result, value, bytes_of(made.result_type));
    return success;
  });
}
