// Softmax and its gradient.
#include "libraries/operations/softmax.h"

#include <algorithm>

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::Softmax;

/// Tensors of one shape: the result, and what it is computed of.
struct SoftmaxCall {
  int algorithm, mode;
  const void *alpha, *beta;
  const void *y_descriptor, *y, *dy_descriptor, *dy, *x_descriptor, *x;
};

int softmax(void* handle, const SoftmaxCall& call, bool backward) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const TensorDescriptor* const y = find<TensorDescriptor>(call.y_descriptor);
    const TensorDescriptor* const x = find<TensorDescriptor>(call.x_descriptor);
    const TensorDescriptor* const dy = find<TensorDescriptor>(call.dy_descriptor);
    if (found == nullptr || x == nullptr || y == nullptr || (backward && dy == nullptr) ||
        call.alpha == nullptr || call.beta == nullptr || call.x == nullptr || call.y == nullptr ||
        (backward && call.dy == nullptr) || call.algorithm < 0 || call.algorithm > 2 || call.mode < 0 ||
        call.mode > 1)
      return bad_param;
    const auto same = [&](const TensorDescriptor& other) {
      return other.dims == y->dims && std::equal(y->sizes, y->sizes + y->dims, other.sizes) &&
             other.data_type == y->data_type;
    };
    if (!same(*x) || (backward && !same(*dy)) || y->dims == 0) return bad_param;
    const auto type = element_of(y->data_type);
    if (!type || !is_real(*type)) return not_supported;
    Softmax operation;
    operation.x = tensor_of(*x, call.x);
    operation.y = tensor_of(*y, call.y);
    if (backward) operation.dy = tensor_of(*dy, call.dy);
    operation.alpha = scalar_of(call.alpha, *type);
    operation.beta = scalar_of(call.beta, *type);
    operation.logarithm = call.algorithm == 2;
    operation.of_instance = call.mode == 0;
    operation.backward = backward;
    return post(*found, operation);
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnSoftmaxForward(void* handle, int algorithm, int mode, const void* alpha,
                                               const void* x_descriptor, const void* x, const void* beta,
                                               const void* y_descriptor, void* y) {
  return softmax(handle, {algorithm, mode, alpha, beta, y_descriptor, y, nullptr, nullptr, x_descriptor, x},
                 false);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSoftmaxBackward(void* handle, int algorithm, int mode, const void* alpha,
                                                const void* y_descriptor, const void* y,
                                                const void* dy_descriptor, const void* dy, const void* beta,
                                                const void* dx_descriptor, void* dx) {
  return softmax(handle,
                 {algorithm, mode, alpha, beta, y_descriptor, y, dy_descriptor, dy, dx_descriptor, dx}, true);
}
