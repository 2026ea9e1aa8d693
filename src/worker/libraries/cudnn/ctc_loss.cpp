// The CTC loss by cuDNN: labels and lengths lie in device memory already.
#include "libraries/operations/ctc_loss.h"

#include <algorithm>

#include "worker/libraries/cudnn/dnn.h"

namespace gpupool::worker {

using operations::CtcLoss;
using operations::Impossible;

namespace {

/// Steps, images and letters: cuDNN wants these three dimensions and no more.
void* described(Dnn& dnn, const operations::Tensor& tensor) {
  constexpr int dims = 3, single = 0;
  int sizes[dims], strides[dims];
  for (int i = 0; i < dims; ++i) {
    if (tensor.sizes[i] > 0x7fffffff || tensor.strides[i] > 0x7fffffff || tensor.strides[i] < 0)
      dnn.fail(Dnn::not_supported);
    sizes[i] = static_cast<int>(tensor.sizes[i]);
    strides[i] = static_cast<int>(tensor.strides[i]);
  }
  void* const descriptor = dnn.make("Tensor");
  dnn.describe("cudnnSetTensorNdDescriptor", descriptor, single, dims, static_cast<const int*>(sizes),
               static_cast<const int*>(strides));
  return descriptor;
}

}  // namespace

CUresult run(const Execution& x, const CtcLoss& of) {
  Dnn dnn(x);
  constexpr int single = 0, deterministic = 0, longest = 255;
  constexpr int yes = 1;  // not-a-number is told, or gradients are left as they are
  void* const loss = dnn.make("CTCLoss");
  const int normalization = of.softmax != 0 ? 1 : 0;
  if (of.impossible == Impossible::no_numbers) {
    dnn.describe("cudnnSetCTCLossDescriptor_v8", loss, single, normalization, yes, longest);
  } else {
    dnn.describe("cudnnSetCTCLossDescriptor_v9", loss, single, normalization,
                 of.impossible == Impossible::not_written ? yes : 0, longest);
  }
  void* const probabilities = described(dnn, of.probabilities);
  void* const gradient = of.gradient.address != 0 ? described(dnn, of.gradient) : nullptr;
  std::size_t bytes = 0;
  dnn.call("cudnnGetCTCLossWorkspaceSize_v8", deterministic, loss, probabilities, gradient, &bytes);
  if (!dnn.good()) return dnn.result();
  const Workspace workspace(x, bytes);
  if (!workspace.there()) return result_of_cudnn(Dnn::no_memory);
  dnn.call("cudnnCTCLoss_v8", deterministic, loss, probabilities, place_of(of.probabilities),
           pointer<void>(of.labels), pointer<void>(of.label_lengths), pointer<void>(of.step_lengths),
           pointer<void>(of.losses), gradient, place_of(of.gradient), workspace.bytes(), workspace.address());
  return dnn.result();
}

}  // namespace gpupool::worker
