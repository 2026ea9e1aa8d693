#include "softgpu/libraries/tensors.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "softgpu/libraries/elements.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Activation;

[[noreturn]] void wrong_tensor(const char* what, const char* why) {
  throw Failure(softgpu::Fault::illegal_instruction, std::string(what) + ": " + why);
}

/// How many elements a tensor has, and how many places lie from its first to its last one.
struct Extent {
  std::int64_t count = 1, places = 1;
};

/// Throws Failure where a number is out of range.
Extent extent_of(const Tensor& tensor, const char* what) {
  if (bytes_of(tensor.type) == 0 || is_complex(tensor.type)) wrong_tensor(what, "an unknown type");
  if (tensor.dims > gpupool::operations::max_dims) wrong_tensor(what, "too many dimensions");
  constexpr std::int64_t most = std::int64_t{1} << 40;
  Extent extent;
  for (int i = 0; i < tensor.dims; ++i) {
    const std::int64_t size = tensor.sizes[i], stride = tensor.strides[i];
    if (size < 1 || size > most || stride < 0 || stride > most) wrong_tensor(what, "a size out of range");
    std::int64_t far = 0;
    if (__builtin_mul_overflow(extent.count, size, &extent.count) || extent.count > most ||
        __builtin_mul_overflow(size - 1, stride, &far) ||
        __builtin_add_overflow(extent.places, far, &extent.places))
      wrong_tensor(what, "a size out of range");
  }
  return extent;
}

template <class N, class F>
void map(std::int64_t count, N* values, F f) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = f(values[i]);
}

}  // namespace

void check_tensor(const Tensor& tensor, const Memory& memory, const char* what) {
  const Extent extent = extent_of(tensor, what);
  constexpr std::int64_t most_repeated = std::int64_t{1} << 31;
  if (extent.count > std::max(extent.places, most_repeated)) wrong_tensor(what, "more elements than memory");
  memory.check(tensor.address, static_cast<std::uint64_t>(extent.places), bytes_of(tensor.type), what);
}

void check_written(const Tensor& tensor, const Memory& memory, const char* what) {
  const Extent extent = extent_of(tensor, what);
  bool repeated = extent.count > extent.places;
  for (int i = 0; i < tensor.dims; ++i) repeated |= tensor.sizes[i] > 1 && tensor.strides[i] == 0;
  if (repeated) wrong_tensor(what, "elements that are written lie in one place");
  memory.check(tensor.address, static_cast<std::uint64_t>(extent.places), bytes_of(tensor.type), what);
}

void check_room(std::int64_t numbers, const char* what) {
  constexpr std::int64_t most = std::int64_t{1} << 28;
  if (numbers > most)
    throw Failure(softgpu::Fault::launch_out_of_resources,
                  std::string(what) + ": more numbers than one part may hold");
}

void check_same_sizes(const Tensor& one, const Tensor& other, const char* what) {
  if (one.dims != other.dims || !std::equal(one.sizes, one.sizes + one.dims, other.sizes))
    wrong_tensor(what, "another shape");
}

template <class N>
void read_row(const Tensor& tensor, std::int64_t offset, std::int64_t stride, std::int64_t count, N* into) {
  with_type(tensor.type, [&](auto type) {
    using T = decltype(type);
    const T* const from = reinterpret_cast<const T*>(tensor.address) + offset;
    if constexpr (std::is_same_v<T, N>) {
      if (stride == 1) {
        std::copy_n(from, count, into);
        return;
      }
    }
    for (std::int64_t i = 0; i < count; ++i) into[i] = to_number<N>(from[i * stride]);
  });
}

template <class N>
void write_row(const Tensor& tensor, std::int64_t offset, std::int64_t stride, std::int64_t count,
               const N* from) {
  with_type(tensor.type, [&](auto type) {
    using T = decltype(type);
    T* const into = reinterpret_cast<T*>(tensor.address) + offset;
    for (std::int64_t i = 0; i < count; ++i) into[i * stride] = to_element<T>(from[i]);
  });
}

template <class N>
void activate(const Activated& how, std::int64_t count, N* values) {
  const auto coefficient = static_cast<N>(how.coefficient), lower = static_cast<N>(how.lower),
             upper = static_cast<N>(how.upper);
  switch (how.activation) {
    case Activation::identity:
      return;
    case Activation::sigmoid:
      return map(count, values, [](N x) { return N(1) / (N(1) + std::exp(-x)); });
    case Activation::relu:  // what is no number stays so
      return map(count, values, [](N x) { return x < N(0) ? N(0) : x; });
    case Activation::tanh:
      return map(count, values, [](N x) { return std::tanh(x); });
    case Activation::clipped_relu:
      return map(count, values, [=](N x) { return x < lower ? lower : x > upper ? upper : x; });
    case Activation::elu:
      return map(count, values, [=](N x) { return x < N(0) ? coefficient * std::expm1(x) : x; });
    case Activation::swish:
      return map(count, values, [=](N x) { return x / (N(1) + std::exp(-coefficient * x)); });
    case Activation::gelu:
      return map(count, values,
                 [](N x) { return x / N(2) * (N(1) + std::erf(x / std::numbers::sqrt2_v<N>)); });
    case Activation::gelu_tanh:
      return map(count, values, [](N x) {
        const N inner = std::sqrt(N(2) / std::numbers::pi_v<N>) * (x + N(0.044715) * x * x * x);
        return x / N(2) * (N(1) + std::tanh(inner));
      });
    case Activation::softplus:
      return map(count, values, [=](N x) { return std::log1p(std::exp(coefficient * x)) / coefficient; });
  }
  wrong_tensor("activation", "there is no such one");
}

template void read_row(const Tensor&, std::int64_t, std::int64_t, std::int64_t, float*);
template void read_row(const Tensor&, std::int64_t, std::int64_t, std::int64_t, double*);
template void write_row(const Tensor&, std::int64_t, std::int64_t, std::int64_t, const float*);
template void write_row(const Tensor&, std::int64_t, std::int64_t, std::int64_t, const double*);
template void activate(const Activated&, std::int64_t, float*);
template void activate(const Activated&, std::int64_t, double*);

}  // namespace softgpu::libraries
