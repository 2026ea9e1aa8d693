// Batch normalisation by cuDNN. Its functions that add and rectify as well keep something for the gradients,
// which only they can read: so here both are calls of their own.
#include "libraries/operations/batch_normalization.h"

#include "worker/libraries/cudnn/dnn.h"

namespace gpupool::worker {
namespace {

using operations::Activated;
using operations::Activation;
using operations::BatchNormalization;
using operations::NormalizationDirection;
using operations::Tensor;

constexpr int per_activation = 0, spatial = 1;  // cudnnBatchNormMode_t

Activated rectifier() {
  Activated made;
  made.activation = Activation::relu;
  return made;
}

/// One normalisation and its descriptors.
class NormalizationCall {
 public:
  NormalizationCall(const Execution& x, const BatchNormalization& of)
      : x_(x), of_(of), dnn_(x), dims_(dims_of({&of.x})), one_(1, of.x.type), zero_(0, of.x.type) {
    mode_ = spatial;
    for (int i = 2; i < of.parameters.dims; ++i) {
      if (of.parameters.sizes[i] != 1) mode_ = per_activation;
    }
    x_descriptor_ = dnn_.tensor(of.x, dims_);
    parameters_ = dnn_.tensor(of.parameters, dims_);
  }

  CUresult run() {
    if (of_.direction == NormalizationDirection::backward) {
      gradients();
    } else {
      normalize();
    }
    return dnn_.result();
  }

 private:
  void normalize() {
    if ((of_.rectified || of_.z.address != 0) && (of_.alpha != 1 || of_.beta != 0))
      return dnn_.fail(Dnn::not_supported);
    const DnnScalar alpha(of_.alpha, of_.x.type), beta(of_.beta, of_.x.type);
    void* const y = dnn_.tensor(of_.y, dims_);
    const auto at = [](std::uint64_t address) { return pointer<void>(address); };
    if (of_.direction == NormalizationDirection::inference) {
      dnn_.call("cudnnBatchNormalizationForwardInference", mode_, alpha.place(), beta.place(), x_descriptor_,
                place_of(of_.x), y, place_of(of_.y), parameters_, at(of_.scale), at(of_.bias), at(of_.mean),
                at(of_.variance), of_.epsilon);
    } else {
      dnn_.call("cudnnBatchNormalizationForwardTraining", mode_, alpha.place(), beta.place(), x_descriptor_,
                place_of(of_.x), y, place_of(of_.y), parameters_, at(of_.scale), at(of_.bias),
                of_.running_factor, at(of_.mean), at(of_.variance), of_.epsilon, at(of_.saved_mean),
                at(of_.saved_deviation));
    }
    if (of_.z.address != 0) {
      dnn_.call("cudnnAddTensor", one_.place(), dnn_.tensor(of_.z, dims_), place_of(of_.z), one_.place(), y,
                place_of(of_.y));
    }
    if (of_.rectified) {
      dnn_.call("cudnnActivationForward", dnn_.activation(rectifier()), one_.place(), y, place_of(of_.y),
                zero_.place(), y, place_of(of_.y));
    }
  }

  void gradients() {
    const DnnScalar alpha(of_.alpha, of_.x.type), beta(of_.beta, of_.x.type);
    if (!of_.rectified) {
      if (of_.dz.address != 0) {
        dnn_.call("cudnnTransformTensor", alpha.place(), dnn_.tensor(of_.dy, dims_), place_of(of_.dy),
                  beta.place(), dnn_.tensor(of_.dz, dims_), place_of(of_.dz));
      }
      return gradients_of(of_.dy);
    }
    // The gradient of what was rectified: where dz goes, if that is all of it, or in between.
    const bool as_dz = of_.dz.address != 0 && of_.alpha == 1 && of_.beta == 0;
    Tensor rectified = as_dz ? of_.dz : of_.dy;
    std::int64_t last = 0;
    for (int i = 0; i < rectified.dims; ++i) {
      if (rectified.strides[i] < 0) return dnn_.fail(Dnn::not_supported);
      last += (rectified.sizes[i] - 1) * rectified.strides[i];
    }
    const auto bytes = static_cast<std::size_t>(last + 1) * operations::bytes_of(rectified.type);
    const Workspace between(x_, as_dz ? 0 : bytes);
    if (!between.there()) return dnn_.fail(Dnn::no_memory);
    if (!as_dz) rectified.address = reinterpret_cast<std::uintptr_t>(between.address());
    void *const y = dnn_.tensor(of_.y, dims_), *const dy = dnn_.tensor(rectified, dims_);
    dnn_.call("cudnnActivationBackward", dnn_.activation(rectifier()), one_.place(), y, place_of(of_.y),
              dnn_.tensor(of_.dy, dims_), place_of(of_.dy), y, place_of(of_.y), zero_.place(), dy,
              place_of(rectified));
    if (of_.dz.address != 0 && !as_dz) {
      dnn_.call("cudnnTransformTensor", alpha.place(), dy, place_of(rectified), beta.place(),
                dnn_.tensor(of_.dz, dims_), place_of(of_.dz));
    }
    gradients_of(rectified);
  }

  void gradients_of(const Tensor& dy) {
    const auto type = of_.x.type;
    const DnnScalar alpha(of_.alpha, type), beta(of_.beta, type),
        alpha_parameters(of_.alpha_parameters, type), beta_parameters(of_.beta_parameters, type);
    const auto at = [](std::uint64_t address) { return pointer<void>(address); };
    dnn_.call("cudnnBatchNormalizationBackward", mode_, alpha.place(), beta.place(), alpha_parameters.place(),
              beta_parameters.place(), x_descriptor_, place_of(of_.x), dnn_.tensor(dy, dims_), place_of(dy),
              dnn_.tensor(of_.dx, dims_), place_of(of_.dx), parameters_, at(of_.scale),
              at(of_.scale_gradient), at(of_.bias_gradient), of_.epsilon, at(of_.saved_mean),
              at(of_.saved_deviation));
  }

  const Execution& x_;
  const BatchNormalization& of_;
  Dnn dnn_;
  const int dims_;
  const DnnScalar one_, zero_;
  int mode_;
  void *x_descriptor_, *parameters_;
};

}  // namespace

CUresult run(const Execution& x, const BatchNormalization& operation) {
  return NormalizationCall(x, operation).run();
}

}  // namespace gpupool::worker
