// Element-wise calls, activations among them: each is one operation.
#include "libraries/operations/pointwise.h"

#include <algorithm>

#include "libraries/cudnn/convolution.h"
#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::Combine;
using gpupool::operations::Pointwise;

bool computable(const TensorDescriptor& descriptor) {
  return element_of(descriptor.data_type).has_value();
}
bool same_sizes(const TensorDescriptor& one, const TensorDescriptor& other) {
  return one.dims == other.dims && std::equal(one.sizes, one.sizes + one.dims, other.sizes);
}
/// Whether it is of the target's size, or of size 1 to be repeated, on every axis.
bool repeatable(const TensorDescriptor& operand, const TensorDescriptor& target) {
  if (operand.dims != target.dims) return false;
  for (int i = 0; i < target.dims; ++i) {
    if (operand.sizes[i] != target.sizes[i] && operand.sizes[i] != 1) return false;
  }
  return true;
}

/// A tensor argument: its descriptor and its address.
struct Operand {
  const void* descriptor;
  const void* address;

  [[nodiscard]] const TensorDescriptor* of() const { return find<TensorDescriptor>(descriptor); }
  [[nodiscard]] bool there() const { return of() != nullptr && of()->dims > 0 && address != nullptr; }
  [[nodiscard]] Tensor tensor() const { return tensor_of(*of(), address); }
};

template <class Body>
int with_target(void* handle, const Operand& target, Body body) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    if (found == nullptr || !target.there()) return bad_param;
    if (!computable(*target.of())) return not_supported;
    Pointwise operation;
    operation.target = target.tensor();
    if (const int bad = body(operation); bad != success) return bad;
    return post(*found, operation);
  });
}

/// target = alpha · a + beta · target.
int scaled_sum(void* handle, const void* alpha, const Operand& a, const void* beta, const Operand& target,
               bool repeats) {
  return with_target(handle, target, [&](Pointwise& operation) -> int {
    if (alpha == nullptr || beta == nullptr || !a.there()) return bad_param;
    if (repeats ? !repeatable(*a.of(), *target.of()) : !same_sizes(*a.of(), *target.of())) return bad_param;
    if (!computable(*a.of())) return not_supported;
    operation.a = a.tensor();
    operation.alpha = scalar_of(alpha, operation.target.type);
    operation.beta = scalar_of(beta, operation.target.type);
    return success;
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnAddTensor(void* handle, const void* alpha, const void* a_descriptor,
                                          const void* a, const void* beta, const void* c_descriptor,
                                          void* c) {
  return scaled_sum(handle, alpha, {a_descriptor, a}, beta, {c_descriptor, c}, true);
}
GPUPOOL_LIBRARY_EXPORT int cudnnTransformTensor(void* handle, const void* alpha, const void* x_descriptor,
                                                const void* x, const void* beta, const void* y_descriptor,
                                                void* y) {
  return scaled_sum(handle, alpha, {x_descriptor, x}, beta, {y_descriptor, y}, false);
}
GPUPOOL_LIBRARY_EXPORT int cudnnScaleTensor(void* handle, const void* descriptor, void* y,
                                            const void* alpha) {
  return with_target(handle, {descriptor, y}, [&](Pointwise& operation) -> int {
    if (alpha == nullptr) return bad_param;
    operation.a = operation.target;
    operation.alpha = scalar_of(alpha, operation.target.type);
    return success;
  });
}
/// The value has the tensor's type.
GPUPOOL_LIBRARY_EXPORT int cudnnSetTensor(void* handle, const void* descriptor, void* y, const void* value) {
  return with_target(handle, {descriptor, y}, [&](Pointwise& operation) -> int {
    if (value == nullptr) return bad_param;
    const auto number = number_of(value, operation.target.type);
    if (!number) return not_supported;
    operation.alpha_a = *number;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cudnnOpTensor(void* handle, const void* descriptor, const void* alpha1,
                                         const void* a_descriptor, const void* a, const void* alpha2,
                                         const void* b_descriptor, const void* b, const void* beta,
                                         const void* c_descriptor, void* c) {
  const Operand first{a_descriptor, a}, second{b_descriptor, b}, target{c_descriptor, c};
  return with_target(handle, target, [&](Pointwise& operation) -> int {
    const OpTensorDescriptor* const op = find<OpTensorDescriptor>(descriptor);
    if (op == nullptr || alpha1 == nullptr || beta == nullptr || !first.there()) return bad_param;
    if (!same_sizes(*first.of(), *target.of())) return bad_param;
    constexpr Combine combined[] = {Combine::add,     Combine::multiply,    Combine::minimum,
                                    Combine::maximum, Combine::square_root, Combine::complement};
    operation.combine = combined[op->operation];
    const auto compute = element_of(op->compute_type);
    if (compute != Element::f32 && compute != Element::f64) return not_supported;
    if (!computable(*first.of())) return not_supported;
    operation.a = first.tensor();
    operation.alpha_a = scalar_of(alpha1, *compute);
    operation.beta = scalar_of(beta, *compute);
    if (op->operation >= 4) return success;  // of one operand
    if (alpha2 == nullptr || !second.there() || !repeatable(*second.of(), *target.of())) return bad_param;
    if (!computable(*second.of())) return not_supported;
    operation.b = second.tensor();
    operation.alpha_b = scalar_of(alpha2, *compute);
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cudnnActivationForward(void* handle, const void* descriptor, const void* alpha,
                                                  const void* x_descriptor, const void* x, const void* beta,
                                                  const void* y_descriptor, void* y) {
  const Operand source{x_descriptor, x}, target{y_descriptor, y};
  return with_target(handle, target, [&](Pointwise& operation) -> int {
    const ActivationDescriptor* const activation = find<ActivationDescriptor>(descriptor);
    if (activation == nullptr || alpha == nullptr || beta == nullptr || !source.there()) return bad_param;
    if (!same_sizes(*source.of(), *target.of()) || source.of()->data_type != target.of()->data_type)
      return bad_param;
    if (!is_real(operation.target.type) || activation->mode == 5) return not_supported;
    operation.a = source.tensor();
    operation.activation = activated_of(*activation);
    operation.alpha = scalar_of(alpha, operation.target.type);
    operation.beta = scalar_of(beta, operation.target.type);
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cudnnActivationBackward(void* handle, const void* descriptor, const void* alpha,
                                                   const void* y_descriptor, const void* y,
                                                   const void* dy_descriptor, const void* dy,
                                                   const void* x_descriptor, const void* x, const void* beta,
                                                   const void* dx_descriptor, void* dx) {
  const Operand result{y_descriptor, y}, gradient{dy_descriptor, dy}, source{x_descriptor, x},
      target{dx_descriptor, dx};
  return with_target(handle, target, [&](Pointwise& operation) -> int {
    const ActivationDescriptor* const activation = find<ActivationDescriptor>(descriptor);
    if (activation == nullptr || alpha == nullptr || beta == nullptr) return bad_param;
    for (const Operand* operand : {&result, &gradient, &source}) {
      if (!operand->there() || !same_sizes(*operand->of(), *target.of()) ||
          operand->of()->data_type != target.of()->data_type)
        return bad_param;
    }
    if (!is_real(operation.target.type) || activation->mode == 5) return not_supported;
    operation.combine = Combine::gradient;
    operation.a = gradient.tensor();
    operation.b = source.tensor();
    operation.c = result.tensor();
    operation.activation = activated_of(*activation);
    operation.alpha = scalar_of(alpha, operation.target.type);
    operation.beta = scalar_of(beta, operation.target.type);
    return success;
  });
}
