#include "worker/libraries/cudnn/dropout.h"

#include <vector>

#include "worker/libraries/cudnn/dnn.h"
#include "worker/libraries/kernels/dropout_kernel.h"

namespace gpupool::worker {
namespace {

using operations::Dropout;
using operations::Dropping;
using operations::Tensor;

/// Dimensions of both tensors at once, the outermost first.
struct DropoutAxis {
  std::int64_t size, from, into;
};

/// As few as there can be: those of one element say nothing, and some continue others.
std::vector<DropoutAxis> axes_of(const Tensor& from, const Tensor& into) {
  std::vector<DropoutAxis> axes;
  for (int i = 0; i < into.dims; ++i) {
    const DropoutAxis next{into.sizes[i], from.strides[i], into.strides[i]};
    if (next.size == 1) continue;
    if (!axes.empty() && axes.back().from == next.from * next.size &&
        axes.back().into == next.into * next.size) {
      axes.back() = {axes.back().size * next.size, next.from, next.into};
    } else {
      axes.push_back(next);
    }
  }
  if (axes.empty()) axes.push_back({1, 1, 1});
  return axes;
}

CUresult launch_states(const Execution& x, const DropoutStatesLaunch& states) {
  return x.state.kernels.launch(x.libraries.api, x.stream, dropout_text(), "dropout_states", 1, states);
}

}  // namespace

CUresult drop(const Execution& x, const Tensor& from, const Tensor& into, const Masked& how) {
  const char* const kernel = dropout_kernel(into.type);
  if (kernel == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (from.type != into.type || !same_sizes(from, into) || !(how.rate >= 0 && how.rate <= 1))
    return CUDA_ERROR_INVALID_VALUE;
  const bool draws = how.what == Dropping::forward && how.rate > 0;
  if (draws && how.states == 0) return CUDA_ERROR_ILLEGAL_ADDRESS;
  DropoutLaunch made;
  made.from = from.address;
  made.into = into.address;
  made.mask = how.mask;
  made.states = how.states;
  made.first = how.first;
  made.count = static_cast<std::uint64_t>(into.elements());
  made.left_out = static_cast<std::uint64_t>(how.rate * 0x1p32);
  made.kept = 1 - how.rate;
  made.masking = how.what == Dropping::backward ? Masking::read : draws ? Masking::drawn : Masking::whole;
  const std::vector<DropoutAxis> axes = axes_of(from, into);
  made.dims = static_cast<std::uint32_t>(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    made.sizes[i] = axes[i].size;
    made.from_strides[i] = axes[i].from;
    made.into_strides[i] = axes[i].into;
  }
  return x.state.kernels.launch(x.libraries.api, x.stream, dropout_text(), kernel, made.threads(), made);
}

CUresult move_states_on(const Execution& x, std::uint64_t states, std::uint64_t drawn) {
  return drawn == 0 ? CUDA_SUCCESS : launch_states(x, {states, 0, drawn});
}

CUresult run(const Execution& x, const Dropout& of) {
  if (of.what > Dropping::backward) return CUDA_ERROR_INVALID_VALUE;
  if (of.what == Dropping::seed) return launch_states(x, {of.states, of.seed, 0});
  const CUresult bad = drop(x, of.from, of.into, {of.mask, of.states, of.rate, of.what, 0});
  if (bad != CUDA_SUCCESS || of.what != Dropping::forward || of.rate == 0) return bad;
  return move_states_on(x, of.states, static_cast<std::uint64_t>(of.into.elements()));
}

}  // namespace gpupool::worker
