// Batch normalisation. No call needs a workspace or a reserve: gradients are computed of what was made.
#include "libraries/operations/batch_normalization.h"

#include <algorithm>

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"
#include "libraries/shared/arguments.h"

using namespace gpupool::cudnn;
using gpupool::libraries::address;

namespace {

using gpupool::operations::BatchNormalization;
using gpupool::operations::NormalizationDirection;

/// cudnnBatchNormMode_t and cudnnBatchNormOps_t.
enum NormalizationMode : int { per_activation = 0, spatial = 1, spatial_persistent = 2 };
enum NormalizationOps : int { only_normalization = 0, with_activation = 1, with_addition = 2 };

struct TensorArgument {
  const void* descriptor;
  const void* address;
};
bool is_mode(int mode) {
  return mode >= per_activation && mode <= spatial_persistent;
}

/// The shape of the parameters of tensors like `x`.
TensorDescriptor parameters_of(const TensorDescriptor& x, int mode) {
  TensorDescriptor made = x;
  for (int i = 0; i < x.dims; ++i) {
    if (i == 0 || (i > 1 && mode != per_activation)) made.sizes[i] = 1;
  }
  int next = 1;
  for (int i = x.dims - 1; i >= 0; --i) {
    made.strides[i] = next;
    next *= made.sizes[i];
  }
  // Of half ones they are single.
  made.data_type = x.data_type == 1 ? 1 : 0;
  return made;
}

/// Whether a tensor is that of an argument that all calls have in the shape of x.
int take(const TensorDescriptor& x, const TensorArgument& argument, Tensor& into) {
  const TensorDescriptor* const descriptor = find<TensorDescriptor>(argument.descriptor);
  if (descriptor == nullptr || argument.address == nullptr || descriptor->dims != x.dims ||
      !std::equal(x.sizes, x.sizes + x.dims, descriptor->sizes) || descriptor->data_type != x.data_type)
    return bad_param;
  into = tensor_of(*descriptor, argument.address);
  return success;
}

/// What all calls have: the handle, the mode, x, the parameters' descriptor, epsilon.
template <class Body>
int with_normalization(void* handle, int mode, const TensorArgument& x, const void* parameters,
                       double epsilon, Body body) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const TensorDescriptor* const of_x = find<TensorDescriptor>(x.descriptor);
    const TensorDescriptor* const of_parameters = find<TensorDescriptor>(parameters);
    if (found == nullptr || of_x == nullptr || of_parameters == nullptr || x.address == nullptr ||
        !is_mode(mode) || epsilon < 0)
      return bad_param;
    if (of_x->dims < 4 || of_x->dims > 5) return bad_param;
    const auto type = element_of(of_x->data_type);
    if (!type || !is_real(*type)) return not_supported;
    const TensorDescriptor wanted = parameters_of(*of_x, mode);
    if (of_parameters->dims != of_x->dims ||
        !std::equal(wanted.sizes, wanted.sizes + wanted.dims, of_parameters->sizes) ||
        of_parameters->data_type != wanted.data_type)
      return bad_param;
    BatchNormalization operation;
    operation.x = tensor_of(*of_x, x.address);
    operation.parameters = tensor_of(*of_parameters, nullptr);
    operation.epsilon = epsilon;
    if (const int bad = body(operation, *of_x); bad != success) return bad;
    return post(*found, operation);
  });
}

int set_factors(BatchNormalization& operation, const void* alpha, const void* beta) {
  if (alpha == nullptr || beta == nullptr) return bad_param;
  operation.alpha = scalar_of(alpha, operation.x.type);
  operation.beta = scalar_of(beta, operation.x.type);
  return success;
}

/// Which activation and addition go with it.
int set_ops(BatchNormalization& operation, int ops, const void* activation) {
  if (ops < only_normalization || ops > with_addition) return bad_param;
  if (ops == only_normalization) return success;
  const ActivationDescriptor* const found = find<ActivationDescriptor>(activation);
  if (found == nullptr) return bad_param;
  constexpr int relu = 1, identity = 5;
  if (found->mode != relu && found->mode != identity) return not_supported;
  operation.rectified = found->mode == relu;
  return success;
}

/// Every size of a workspace or reserve is 0.
int no_space(void* handle, int mode, int ops, const void* x, std::size_t* bytes) {
  if (find_handle(handle) == nullptr || !is_mode(mode) || ops < only_normalization || ops > with_addition ||
      find<TensorDescriptor>(x) == nullptr || bytes == nullptr)
    return bad_param;
  *bytes = 0;
  return success;
}

struct Training {
  const void *alpha, *beta, *scale, *bias;
  double factor;
  void *running_mean, *running_variance, *saved_mean, *saved_deviation;
};

int train(void* handle, int mode, int ops, const Training& call, const TensorArgument& x,
          const TensorArgument& z, const TensorArgument& y, const void* parameters, double epsilon,
          const void* activation) {
  return with_normalization(handle, mode, x, parameters, epsilon,
                            [&](BatchNormalization& operation, const TensorDescriptor& of_x) -> int {
                              if (const int bad = set_factors(operation, call.alpha, call.beta);
                                  bad != success)
                                return bad;
                              if (const int bad = set_ops(operation, ops, activation); bad != success)
                                return bad;
                              if (const int bad = take(of_x, y, operation.y); bad != success) return bad;
                              if (ops == with_addition) {
                                if (const int bad = take(of_x, z, operation.z); bad != success) return bad;
                              }
                              // Running ones come together, and so do saved ones.
                              if (call.scale == nullptr || call.bias == nullptr ||
                                  (call.running_mean == nullptr) != (call.running_variance == nullptr) ||
                                  (call.saved_mean == nullptr) != (call.saved_deviation == nullptr))
                                return bad_param;
                              operation.direction = NormalizationDirection::training;
                              operation.scale = address(call.scale);
                              operation.bias = address(call.bias);
                              operation.mean = address(call.running_mean);
                              operation.variance = address(call.running_variance);
                              operation.saved_mean = address(call.saved_mean);
                              operation.saved_deviation = address(call.saved_deviation);
                              operation.running_factor = call.factor;
                              return success;
                            });
}

struct Gradients {
  const void *alpha, *beta, *alpha_parameters, *beta_parameters, *scale;
  void *scale_gradient, *bias_gradient;
  const void *saved_mean, *saved_deviation;
};

int differentiate(void* handle, int mode, int ops, const Gradients& call, const TensorArgument& x,
                  const TensorArgument& y, const TensorArgument& dy, const TensorArgument& dz,
                  const TensorArgument& dx, const void* parameters, double epsilon, const void* activation) {
  return with_normalization(
      handle, mode, x, parameters, epsilon,
      [&](BatchNormalization& operation, const TensorDescriptor& of_x) -> int {
        if (const int bad = set_factors(operation, call.alpha, call.beta); bad != success) return bad;
        if (const int bad = set_ops(operation, ops, activation); bad != success) return bad;
        if (const int bad = take(of_x, dy, operation.dy); bad != success) return bad;
        if (const int bad = take(of_x, dx, operation.dx); bad != success) return bad;
        if (operation.rectified) {
          if (const int bad = take(of_x, y, operation.y); bad != success) return bad;
        }
        if (ops == with_addition) {
          if (const int bad = take(of_x, dz, operation.dz); bad != success) return bad;
        }
        if (call.alpha_parameters == nullptr || call.beta_parameters == nullptr || call.scale == nullptr ||
            call.scale_gradient == nullptr || call.bias_gradient == nullptr ||
            (call.saved_mean == nullptr) != (call.saved_deviation == nullptr))
          return bad_param;
        operation.direction = NormalizationDirection::backward;
        operation.alpha_parameters = scalar_of(call.alpha_parameters, operation.x.type);
        operation.beta_parameters = scalar_of(call.beta_parameters, operation.x.type);
        operation.scale = address(call.scale);
        operation.scale_gradient = address(call.scale_gradient);
        operation.bias_gradient = address(call.bias_gradient);
        operation.saved_mean = address(call.saved_mean);
        operation.saved_deviation = address(call.saved_deviation);
        return success;
      });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnDeriveBNTensorDescriptor(void* derived, const void* x, int mode) {
  TensorDescriptor* const into = find<TensorDescriptor>(derived);
  const TensorDescriptor* const from = find<TensorDescriptor>(x);
  if (into == nullptr || from == nullptr || !is_mode(mode) || from->dims < 4) return bad_param;
  *into = parameters_of(*from, mode);
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnBatchNormalizationForwardInference(
    void* handle, int mode, const void* alpha, const void* beta, const void* x_descriptor, const void* x,
    const void* y_descriptor, void* y, const void* parameters, const void* scale, const void* bias,
    const void* mean, const void* variance, double epsilon) {
  return with_normalization(
      handle, mode, {x_descriptor, x}, parameters, epsilon,
      [&](BatchNormalization& operation, const TensorDescriptor& of_x) -> int {
        if (const int bad = set_factors(operation, alpha, beta); bad != success) return bad;
        if (const int bad = take(of_x, {y_descriptor, y}, operation.y); bad != success) return bad;
        if (scale == nullptr || bias == nullptr || mean == nullptr || variance == nullptr) return bad_param;
        operation.scale = address(scale);
        operation.bias = address(bias);
        operation.mean = address(mean);
        operation.variance = address(variance);
        return success;
      });
}

GPUPOOL_LIBRARY_EXPORT int cudnnBatchNormalizationForwardTraining(
    void* handle, int mode, const void* alpha, const void* beta, const void* x_descriptor, const void* x,
    const void* y_descriptor, void* y, const void* parameters, const void* scale, const void* bias,
    double factor, void* running_mean, void* running_variance, double epsilon, void* saved_mean,
    void* saved_deviation) {
  return train(
      handle, mode, only_normalization,
      {alpha, beta, scale, bias, factor, running_mean, running_variance, saved_mean, saved_deviation},
      {x_descriptor, x}, {}, {y_descriptor, y}, parameters, epsilon, nullptr);
}
GPUPOOL_LIBRARY_EXPORT int cudnnBatchNormalizationForwardTrainingEx(
    void* handle, int mode, int ops, const void* alpha, const void* beta, const void* x_descriptor,
    const void* x, const void* z_descriptor, const void* z, const void* y_descriptor, void* y,
    const void* parameters, const void* scale, const void* bias, double factor, void* running_mean,
    void* running_variance, double epsilon, void* saved_mean, void* saved_deviation, const void* activation,
    void*, std::size_t, void*, std::size_t) {
  return train(
      handle, mode, ops,
      {alpha, beta, scale, bias, factor, running_mean, running_variance, saved_mean, saved_deviation},
      {x_descriptor, x}, {z_descriptor, z}, {y_descriptor, y}, parameters, epsilon, activation);
}

GPUPOOL_LIBRARY_EXPORT int cudnnBatchNormalizationBackward(
    void* handle, int mode, const void* alpha, const void* beta, const void* alpha_parameters,
    const void* beta_parameters, const void* x_descriptor, const void* x, const void* dy_descriptor,
    const void* dy, const void* dx_descriptor, void* dx, const void* parameters, const void* scale,
    void* scale_gradient, void* bias_gradient, double epsilon, const void* saved_mean,
    const void* saved_deviation) {
  return differentiate(handle, mode, only_normalization,
                       {alpha, beta, alpha_parameters, beta_parameters, scale, scale_gradient, bias_gradient,
                        saved_mean, saved_deviation},
                       {x_descriptor, x}, {}, {dy_descriptor, dy}, {}, {dx_descriptor, dx}, parameters,
                       epsilon, nullptr);
}
GPUPOOL_LIBRARY_EXPORT int cudnnBatchNormalizationBackwardEx(
    void* handle, int mode, int ops, const void* alpha, const void* beta, const void* alpha_parameters,
    const void* beta_parameters, const void* x_descriptor, const void* x, const void* y_descriptor,
    const void* y, const void* dy_descriptor, const void* dy, const void* dz_descriptor, void* dz,
    const void* dx_descriptor, void* dx, const void* parameters, const void* scale, const void*,
    void* scale_gradient, void* bias_gradient, double epsilon, const void* saved_mean,
    const void* saved_deviation, const void* activation, void*, std::size_t, void*, std::size_t) {
  return differentiate(handle, mode, ops,
                       {alpha, beta, alpha_parameters, beta_parameters, scale, scale_gradient, bias_gradient,
                        saved_mean, saved_deviation},
                       {x_descriptor, x}, {y_descriptor, y}, {dy_descriptor, dy}, {dz_descriptor, dz},
                       {dx_descriptor, dx}, parameters, epsilon, activation);
}

GPUPOOL_LIBRARY_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void* handle, int mode,
                                                                                    int ops, const void* x,
                                                                                    const void*, const void*,
                                                                                    const void*, const void*,
                                                                                    std::size_t* bytes) {
  return no_space(handle, mode, ops, x, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    void* handle, int mode, int ops, const void* x, const void*, const void*, const void*, const void*,
    const void*, const void*, std::size_t* bytes) {
  return no_space(handle, mode, ops, x, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void* handle, int mode,
                                                                                int ops, const void*,
                                                                                const void* x,
                                                                                std::size_t* bytes) {
  return no_space(handle, mode, ops, x, bytes);
}
