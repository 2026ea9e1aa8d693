#include "worker/libraries/cudnn/dnn.h"

#include <algorithm>

namespace gpupool::worker {

using operations::Activation;
using operations::Element;
using operations::Tensor;

CUresult result_of_cudnn(int status) {
  // Statuses come in thousands: what the program did, what the library does not do, what went wrong.
  if (status == 0) return CUDA_SUCCESS;
  constexpr int not_initialized = 1001;  // it did not start
  if (status == Library::missing || status == not_initialized || status / 1000 == 3)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (status / 1000 == 2) return CUDA_ERROR_INVALID_VALUE;
  if (status == 4003 || status == Dnn::no_memory) return CUDA_ERROR_OUT_OF_MEMORY;
  return CUDA_ERROR_LAUNCH_FAILED;
}

int data_type_of(Element type) {
  switch (type) {
    case Element::f32:
      return 0;
    case Element::f64:
      return 1;
    case Element::f16:
      return 2;
    case Element::i8:
      return 3;
    case Element::i32:
      return 4;
    case Element::u8:
      return 6;
    case Element::bf16:
      return 9;
    default:
      return -1;
  }
}

Dnn::Dnn(const Execution& x) : x_(x) {
  if (x.state.cudnn == nullptr) {
    const Preparation::Scope preparing(x.libraries.preparation);
    describe("cudnnCreate", &x.state.cudnn);
  }
  call("cudnnSetStream", x.stream);
}

Dnn::~Dnn() {
  for (const Made& made : made_)
    x_.libraries.cudnn.call("cudnnDestroy" + made.kind + "Descriptor", made.descriptor);
}

void* Dnn::make(const std::string& kind) {
  void* descriptor = nullptr;
  describe(("cudnnCreate" + kind + "Descriptor").c_str(), &descriptor);
  if (good()) made_.push_back({kind, descriptor});
  return descriptor;
}

void* Dnn::tensor(const Tensor& tensor, int dims) {
  constexpr int least = 4;  // cuDNN knows none with fewer
  int sizes[operations::max_dims], strides[operations::max_dims];
  const auto narrow = [&](std::int64_t value) {
    if (value > 0x7fffffff || value < -0x7fffffff) fail(not_supported);
    return static_cast<int>(value);
  };
  // Of the dimensions of space, the last ones count.
  int count = 0;
  for (int i = 0; i < tensor.dims; ++i) {
    if (i >= 2 && i < tensor.dims - (dims - 2)) continue;
    sizes[count] = narrow(tensor.sizes[i]);
    strides[count++] = narrow(tensor.strides[i]);
  }
  for (; count < least; ++count) sizes[count] = strides[count] = 1;
  void* const descriptor = make("Tensor");
  describe("cudnnSetTensorNdDescriptor", descriptor, data_type_of(tensor.type), count,
           static_cast<const int*>(sizes), static_cast<const int*>(strides));
  return descriptor;
}

void* Dnn::activation(const operations::Activated& activated) {
  constexpr int propagate = 1;  // not-a-number stays what it is
  int mode = 0;
  double coefficient = activated.coefficient;
  switch (activated.activation) {
    case Activation::sigmoid:
      mode = 0;
      break;
    case Activation::relu:
      mode = 1;
      break;
    case Activation::tanh:
      mode = 2;
      break;
    case Activation::clipped_relu:
      mode = 3;
      coefficient = activated.upper;
      if (activated.lower != 0) fail(not_supported);
      break;
    case Activation::elu:
      mode = 4;
      break;
    case Activation::swish:
      mode = 6;
      break;
    default:
      fail(not_supported);
  }
  void* const descriptor = make("Activation");
  describe("cudnnSetActivationDescriptor", descriptor, mode, propagate, coefficient);
  if (activated.activation == Activation::swish)
    describe("cudnnSetActivationDescriptorSwishBeta", descriptor, coefficient);
  return descriptor;
}

int dims_of(std::initializer_list<const Tensor*> tensors) {
  int most = 4;
  for (const Tensor* const tensor : tensors) {
    for (int i = 2; i < tensor->dims; ++i) {
      if (tensor->sizes[i] != 1) {
        most = std::max<int>(most, 2 + tensor->dims - i);
        break;
      }
    }
  }
  return most;
}

}  // namespace gpupool::worker
