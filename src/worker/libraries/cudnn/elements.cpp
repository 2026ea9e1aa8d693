// What cuDNN does element by element, and its reductions.
#include "libraries/operations/pointwise.h"
#include "libraries/operations/reduction.h"
#include "worker/libraries/cudnn/dnn.h"

namespace gpupool::worker {
namespace {

using operations::Activation;
using operations::Combine;
using operations::Element;
using operations::Pointwise;
using operations::Reduce;
using operations::Reduction;
using operations::Tensor;

/// One operation and its descriptors.
class PointwiseCall {
 public:
  PointwiseCall(const Execution& x, const Pointwise& of)
      : of_(of), dnn_(x), dims_(dims_of({&of.target})), target_(dnn_.tensor(of.target, dims_)) {}

  CUresult run() {
    switch (of_.combine) {
      case Combine::first:
        of_.activation.activation == Activation::identity ? copy() : activate();
        break;
      case Combine::gradient:
        gradient();
        break;
      default:
        combine();
    }
    return dnn_.result();
  }

 private:
  [[nodiscard]] DnnScalar scalar(double value) const { return {value, of_.target.type}; }
  void* described(const Tensor& tensor) { return dnn_.tensor(tensor, dims_); }

  void copy() {
    if (of_.a.address == 0) return fill();
    const DnnScalar factor = scalar(of_.alpha * of_.alpha_a), beta = scalar(of_.beta);
    const char* const how = same_sizes(of_.a, of_.target) ? "cudnnTransformTensor" : "cudnnAddTensor";
    if (of_.a.address == of_.target.address) {
      dnn_.call("cudnnScaleTensor", target_, place_of(of_.target),
                scalar(of_.alpha * of_.alpha_a + of_.beta).place());
    } else {
      dnn_.call(how, factor.place(), described(of_.a), place_of(of_.a), beta.place(), target_,
                place_of(of_.target));
    }
  }

  /// The value has the tensor's type.
  void fill() {
    if (of_.beta != 0) dnn_.fail(Dnn::not_supported);
    const double value = of_.alpha * of_.alpha_a;
    switch (of_.target.type) {
      case Element::f32:
      case Element::f64:
        dnn_.call("cudnnSetTensor", target_, place_of(of_.target), scalar(value).place());
        break;
      case Element::f16: {
        const std::uint16_t half = operations::float16_of(static_cast<float>(value));
        dnn_.call("cudnnSetTensor", target_, place_of(of_.target), static_cast<const void*>(&half));
        break;
      }
      case Element::bf16: {
        const std::uint16_t half = operations::bfloat16_of(static_cast<float>(value));
        dnn_.call("cudnnSetTensor", target_, place_of(of_.target), static_cast<const void*>(&half));
        break;
      }
      case Element::i32: {
        const auto number = static_cast<std::int32_t>(value);
        dnn_.call("cudnnSetTensor", target_, place_of(of_.target), static_cast<const void*>(&number));
        break;
      }
      default: {
        const auto number = static_cast<std::int8_t>(value);
        dnn_.call("cudnnSetTensor", target_, place_of(of_.target), static_cast<const void*>(&number));
      }
    }
  }

  void activate() {
    if (of_.alpha_a != 1) dnn_.fail(Dnn::not_supported);
    const DnnScalar alpha = scalar(of_.alpha), beta = scalar(of_.beta);
    dnn_.call("cudnnActivationForward", dnn_.activation(of_.activation), alpha.place(), described(of_.a),
              place_of(of_.a), beta.place(), target_, place_of(of_.target));
  }

  void gradient() {
    const DnnScalar alpha = scalar(of_.alpha), beta = scalar(of_.beta);
    dnn_.call("cudnnActivationBackward", dnn_.activation(of_.activation), alpha.place(), described(of_.c),
              place_of(of_.c), described(of_.a), place_of(of_.a), described(of_.b), place_of(of_.b),
              beta.place(), target_, place_of(of_.target));
  }

  void combine() {
    constexpr int propagate = 1;
    int operation = 0;
    double alpha_a = of_.alpha_a, alpha_b = of_.alpha_b;
    switch (of_.combine) {
      case Combine::add:
        alpha_a *= of_.alpha;
        alpha_b *= of_.alpha;
        break;
      case Combine::subtract:
        alpha_a *= of_.alpha;
        alpha_b *= -of_.alpha;
        break;
      case Combine::multiply:
        alpha_a *= of_.alpha;
        operation = 1;
        break;
      case Combine::minimum:
        operation = 2;
        break;
      case Combine::maximum:
        operation = 3;
        break;
      case Combine::square_root:
        operation = 4;
        break;
      case Combine::complement:
        operation = 5;
        break;
      default:
        dnn_.fail(Dnn::not_supported);
    }
    if (of_.activation.activation != Activation::identity || (operation >= 2 && of_.alpha != 1))
      dnn_.fail(Dnn::not_supported);
    const bool one = operation >= 4;
    const Element compute = of_.target.type == Element::f64 ? Element::f64 : Element::f32;
    const DnnScalar first(alpha_a, compute), second(alpha_b, compute), beta(of_.beta, compute);
    void* const descriptor = dnn_.make("OpTensor");
    dnn_.describe("cudnnSetOpTensorDescriptor", descriptor, operation, data_type_of(compute), propagate);
    const Tensor& other = one ? of_.a : of_.b;
    dnn_.call("cudnnOpTensor", descriptor, first.place(), described(of_.a), place_of(of_.a), second.place(),
              described(other), place_of(other), beta.place(), target_, place_of(of_.target));
  }

  const Pointwise& of_;
  Dnn dnn_;
  const int dims_;
  void* const target_;
};

}  // namespace

CUresult run(const Execution& x, const Pointwise& operation) {
  return PointwiseCall(x, operation).run();
}

CUresult run(const Execution& x, const Reduction& of) {
  Dnn dnn(x);
  const int dims = dims_of({&of.source});
  constexpr int propagate = 1, flattened = 1, of_32_bits = 0;
  const Element compute = of.source.type == Element::f64 ? Element::f64 : Element::f32;
  void* const descriptor = dnn.make("ReduceTensor");
  dnn.describe("cudnnSetReduceTensorDescriptor", descriptor, static_cast<int>(of.operation),
               data_type_of(compute), propagate, of.indices != 0 ? flattened : 0, of_32_bits);
  void *const from = dnn.tensor(of.source, dims), *const to = dnn.tensor(of.target, dims);
  std::size_t indices = 0, bytes = 0;
  dnn.call("cudnnGetReductionIndicesSize", descriptor, from, to, &indices);
  dnn.call("cudnnGetReductionWorkspaceSize", descriptor, from, to, &bytes);
  if (!dnn.good()) return dnn.result();
  const Workspace workspace(x, bytes);
  // The library may ask for more room than the indices take.
  const std::size_t own = of.indices == 0 ? 0 : static_cast<std::size_t>(of.target.elements()) * 4;
  const Workspace room(x, indices > own ? indices : 0);
  if (!workspace.there() || !room.there()) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const place = indices > own ? room.address() : pointer<void>(of.indices);
  const DnnScalar alpha(of.alpha, of.target.type), beta(of.beta, of.target.type);
  dnn.call("cudnnReduceTensor", descriptor, place, std::max(indices, own), workspace.address(),
           workspace.bytes(), alpha.place(), from, place_of(of.source), beta.place(), to,
           place_of(of.target));
  if (dnn.good() && of.indices != 0 && indices > own)
    return x.libraries.api.cuMemcpyDtoDAsync_v2_(of.indices, reinterpret_cast<CUdeviceptr>(place), own,
                                                 x.stream);
  return dnn.result();
}

}  // namespace gpupool::worker
