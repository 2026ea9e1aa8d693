// Pooling and its gradient.
#include "libraries/operations/pooling.h"

#include <algorithm>

#include "libraries/cudnn/convolution.h"
#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::Pool;
using gpupool::operations::Pooling;

struct PoolingArgument {
  const void* descriptor;
  const void* address;

  /// The tensor with five dimensions, if it is of this shape and type.
  [[nodiscard]] std::optional<Tensor> like(const TensorDescriptor& other) const {
    const TensorDescriptor* const found = find<TensorDescriptor>(descriptor);
    if (found == nullptr || address == nullptr || found->dims != other.dims ||
        !std::equal(other.sizes, other.sizes + other.dims, found->sizes) ||
        found->data_type != other.data_type)
      return std::nullopt;
    return of_five(tensor_of(*found, address));
  }
};

/// Everything but the gradients.
int pooling_of(const PoolingDescriptor* pooling, const PoolingArgument& x, const PoolingArgument& y,
               const void* alpha, const void* beta, Pooling& operation) {
  const TensorDescriptor* const of_x = find<TensorDescriptor>(x.descriptor);
  const TensorDescriptor* const of_y = find<TensorDescriptor>(y.descriptor);
  if (pooling == nullptr || of_x == nullptr || of_y == nullptr || alpha == nullptr || beta == nullptr ||
      x.address == nullptr || y.address == nullptr)
    return bad_param;
  if (of_x->dims != pooling->dims + 2 || of_y->dims != of_x->dims || of_x->data_type != of_y->data_type ||
      of_x->sizes[0] != of_y->sizes[0] || of_x->sizes[1] != of_y->sizes[1])
    return bad_param;
  if (pooling->dims > Pooling::space) return not_supported;
  const auto type = element_of(of_x->data_type);
  if (!type || !is_real(*type)) return not_supported;
  const int missing = Pooling::space - pooling->dims;
  for (int i = 0; i < pooling->dims; ++i) {
    // As many results as the program wants, of windows that may go beyond the end (TensorFlow's "SAME" pads
    // it more than the beginning), as long as each covers something.
    const std::int64_t last = std::int64_t{of_y->sizes[2 + i] - 1} * pooling->stride[i] - pooling->padding[i];
    if (last >= of_x->sizes[2 + i] || pooling->padding[i] >= pooling->window[i]) return bad_param;
    operation.window[missing + i] = pooling->window[i];
    operation.padding[missing + i] = pooling->padding[i];
    operation.stride[missing + i] = pooling->stride[i];
  }
  constexpr Pool pools[] = {Pool::maximum, Pool::average_with_padding, Pool::average, Pool::maximum};
  operation.pool = pools[pooling->mode];
  operation.x = of_five(tensor_of(*of_x, x.address));
  operation.y = of_five(tensor_of(*of_y, y.address));
  operation.alpha = scalar_of(alpha, *type);
  operation.beta = scalar_of(beta, *type);
  return success;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnPoolingForward(void* handle, const void* descriptor, const void* alpha,
                                               const void* x_descriptor, const void* x, const void* beta,
                                               const void* y_descriptor, void* y) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    if (found == nullptr) return bad_param;
    Pooling operation;
    if (const int bad = pooling_of(find<PoolingDescriptor>(descriptor), {x_descriptor, x}, {y_descriptor, y},
                                   alpha, beta, operation);
        bad != success)
      return bad;
    return post(*found, operation);
  });
}
GPUPOOL_LIBRARY_EXPORT int cudnnPoolingBackward(void* handle, const void* descriptor, const void* alpha,
                                                const void* y_descriptor, const void* y,
                                                const void* dy_descriptor, const void* dy,
                                                const void* x_descriptor, const void* x, const void* beta,
                                                const void* dx_descriptor, void* dx) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    if (found == nullptr) return bad_param;
    Pooling operation;
    if (const int bad = pooling_of(find<PoolingDescriptor>(descriptor), {x_descriptor, x}, {y_descriptor, y},
                                   alpha, beta, operation);
        bad != success)
      return bad;
    const auto of_dy = PoolingArgument{dy_descriptor, dy}.like(*find<TensorDescriptor>(y_descriptor));
    const auto of_dx = PoolingArgument{dx_descriptor, dx}.like(*find<TensorDescriptor>(x_descriptor));
    if (!of_dy || !of_dx) return bad_param;
    operation.dy = *of_dy;
    operation.dx = *of_dx;
    operation.backward = true;
    return post(*found, operation);
  });
}
