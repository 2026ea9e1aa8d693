// Gradients of activations.
#pragma once

#include <cmath>
#include <cstdint>

#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {

/// dy becomes dx. x: the argument; y: the activation's result of it.
template <class N>
void activation_gradient(const Activated& how, std::int64_t count, N* dy, const N* x, const N* y) {
  using gpupool::operations::Activation;
  const auto coefficient = static_cast<N>(how.coefficient), lower = static_cast<N>(how.lower),
             upper = static_cast<N>(how.upper);
  const auto each = [&](auto f) {
    for (std::int64_t i = 0; i < count; ++i) dy[i] *= f(x[i], y[i]);
  };
  switch (how.activation) {
    case Activation::identity:
      return;
    case Activation::sigmoid:
      return each([](N, N of) { return of * (N(1) - of); });
    case Activation::tanh:
      return each([](N, N of) { return N(1) - of * of; });
    case Activation::relu:
      for (std::int64_t i = 0; i < count; ++i) dy[i] = x[i] > N(0) ? dy[i] : N(0);
      return;
    case Activation::clipped_relu:
      for (std::int64_t i = 0; i < count; ++i) dy[i] = x[i] > lower && x[i] < upper ? dy[i] : N(0);
      return;
    case Activation::elu:
      return each([=](N at, N of) { return at < N(0) ? of + coefficient : N(1); });
    case Activation::swish:
      return each([=](N at, N of) {
        const N sigmoid = N(1) / (N(1) + std::exp(-coefficient * at));
        return sigmoid + coefficient * of * (N(1) - sigmoid);
      });
    default:
      throw Failure(softgpu::Fault::illegal_instruction, "this activation has no gradient");
  }
}

}  // namespace softgpu::libraries
