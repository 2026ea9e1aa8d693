// Batch normalisation. A part has some channels: each is read to its end for the mean, again for the
// variance, and again for what is made of it. Sums are of double precision.
#include "libraries/operations/batch_normalization.h"

#include <cmath>
#include <string>
#include <vector>

#include "softgpu/libraries/loops.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sums.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::BatchNormalization;
using gpupool::operations::NormalizationDirection;

constexpr std::int64_t row_length = 4096;
enum : std::size_t { at_x, at_y, at_z, at_dy, at_dx, at_dz, operands };
using Walk = Loops<operands>;

[[noreturn]] void wrong_normalization(const char* why) {
  throw Failure(softgpu::Fault::illegal_instruction, std::string("batch normalisation: ") + why);
}

void check_normalization(const BatchNormalization& op, const Memory& memory) {
  const bool backward = op.direction == NormalizationDirection::backward;
  const auto check = [&](const Tensor& tensor, bool needed, const char* what) {
    if (tensor.address == 0 && !needed) return;
    const bool written = backward ? &tensor == &op.dx || &tensor == &op.dz : &tensor == &op.y;
    (written ? check_written : check_tensor)(tensor, memory, what);
    check_same_sizes(tensor, op.x, what);
  };
  if (op.direction > NormalizationDirection::backward) wrong_normalization("there is no such direction");
  check_tensor(op.x, memory, "the input");
  check(op.y, !backward || op.rectified, "the output");
  check(op.z, false, "what is added");
  check(op.dy, backward, "the gradient of the output");
  check(op.dx, backward, "the gradient of the input");
  check(op.dz, false, "the gradient of what is added");
  if (op.parameters.dims != op.x.dims) wrong_normalization("parameters of other dimensions");
  for (int i = 0; i < op.x.dims; ++i) {
    if (op.parameters.sizes[i] != op.x.sizes[i] && op.parameters.sizes[i] != 1)
      wrong_normalization("parameters of another shape");
  }
  const auto of_channels = [&](std::uint64_t address, bool needed, const char* what) {
    if (address == 0 && !needed) return;
    Tensor tensor = op.parameters;
    tensor.address = address;
    check_tensor(tensor, memory, what);
  };
  const bool inference = op.direction == NormalizationDirection::inference;
  of_channels(op.scale, true, "the scale");
  of_channels(op.bias, !backward, "the bias");
  of_channels(op.mean, inference, "the mean");
  of_channels(op.variance, inference, "the variance");
  of_channels(op.saved_mean, false, "the saved mean");
  of_channels(op.saved_deviation, false, "the saved variance");
  of_channels(op.scale_gradient, backward, "the gradient of the scale");
  of_channels(op.bias_gradient, backward, "the gradient of the bias");
}

template <class N>
class Normalized {
 public:
  explicit Normalized(const BatchNormalization& op) : op_(op) {
    const Tensor* const tensors[operands] = {&op.x, &op.y, &op.z, &op.dy, &op.dx, &op.dz};
    for (int i = 0; i < op.x.dims; ++i) {
      typename Walk::Offsets strides{};
      for (std::size_t t = 0; t < operands; ++t) strides[t] = tensors[t]->strides[i];
      if (op.parameters.sizes[i] == 1) {
        within_.add(op.x.sizes[i], strides);
      } else {
        channels_.add(op.x.sizes[i], strides);
        parameters_.add(op.x.sizes[i], {op.parameters.strides[i]});
      }
    }
    within_.arrange(at_x);
    count_ = within_.elements();
    for (auto& row : rows_) row.resize(static_cast<std::size_t>(row_length));
  }

  void part(std::uint64_t index) {
    const std::int64_t from = static_cast<std::int64_t>(index) * op_.block();
    const std::int64_t to = std::min(from + op_.block(), parameters_.elements());
    for (std::int64_t channel = from; channel < to; ++channel) {
      base_ = channels_.at(channel);
      parameter_ = parameters_.at(channel)[0];
      if (op_.direction == NormalizationDirection::backward) {
        gradients();
      } else {
        forward();
      }
    }
  }

 private:
  [[nodiscard]] double parameter(std::uint64_t address) const {
    Tensor tensor = op_.parameters;
    tensor.address = address;
    double value = 0;
    read_row(tensor, parameter_, 1, 1, &value);
    return value;
  }
  void set_parameter(std::uint64_t address, double value) const {
    Tensor tensor = op_.parameters;
    tensor.address = address;
    write_row(tensor, parameter_, 1, 1, &value);
  }

  /// f(offsets, strides, count) for the channel's rows.
  template <class F>
  void each_row(F f) const {
    within_.each(0, count_, [&](const auto& offsets, const auto& strides, std::int64_t count, std::int64_t) {
      for (std::int64_t first = 0; first < count; first += row_length) {
        typename Walk::Offsets at = base_;
        for (std::size_t t = 0; t < operands; ++t) at[t] += offsets[t] + first * strides[t];
        f(at, strides, std::min(row_length, count - first));
      }
    });
  }
  N* read(std::size_t operand, const Tensor& tensor, const typename Walk::Offsets& at,
          const typename Walk::Offsets& strides, std::int64_t count) {
    read_row(tensor, at[operand], strides[operand], count, rows_[operand].data());
    return rows_[operand].data();
  }
  /// tensor = alpha · values + beta · tensor. The tensor's own row is free.
  void store(std::size_t operand, const Tensor& tensor, const typename Walk::Offsets& at,
             const typename Walk::Offsets& strides, std::int64_t count, N* values) {
    for (std::int64_t i = 0; i < count; ++i) values[i] *= static_cast<N>(op_.alpha);
    if (op_.beta != 0) {
      before_.resize(static_cast<std::size_t>(row_length));
      read_row(tensor, at[operand], strides[operand], count, before_.data());
      for (std::int64_t i = 0; i < count; ++i)
        values[i] += static_cast<N>(op_.beta) * before_[static_cast<std::size_t>(i)];
    }
    write_row(tensor, at[operand], strides[operand], count, values);
  }

  struct Statistics {
    double mean, variance;
  };
  Statistics statistics() {
    double sum = 0, squares = 0;
    each_row([&](const auto& at, const auto& strides, std::int64_t count) {
      sum += sum_of(read(at_x, op_.x, at, strides, count), count, [](double x) { return x; });
    });
    const double mean = sum / static_cast<double>(count_);
    each_row([&](const auto& at, const auto& strides, std::int64_t count) {
      squares += sum_of(read(at_x, op_.x, at, strides, count), count,
                        [&](double x) { return (x - mean) * (x - mean); });
    });
    return {mean, squares / static_cast<double>(count_)};
  }

  void forward() {
    Statistics of{};
    if (op_.direction == NormalizationDirection::inference) {
      of = {parameter(op_.mean), parameter(op_.variance)};
    } else {
      of = statistics();
      keep(of);
    }
    const double factor = parameter(op_.scale) / std::sqrt(of.variance + op_.epsilon);
    const auto scale = static_cast<N>(factor), mean = static_cast<N>(of.mean),
               bias = static_cast<N>(parameter(op_.bias));
    each_row([&](const auto& at, const auto& strides, std::int64_t count) {
      N* const values = read(at_x, op_.x, at, strides, count);
      for (std::int64_t i = 0; i < count; ++i) values[i] = scale * (values[i] - mean) + bias;
      if (op_.z.address != 0) {
        const N* const added = read(at_z, op_.z, at, strides, count);
        for (std::int64_t i = 0; i < count; ++i) values[i] += added[i];
      }
      if (op_.rectified) {
        for (std::int64_t i = 0; i < count; ++i) values[i] = values[i] < N(0) ? N(0) : values[i];
      }
      store(at_y, op_.y, at, strides, count, values);
    });
  }

  /// What training leaves behind. The running variance is that of a sample.
  void keep(const Statistics& of) const {
    const auto count = static_cast<double>(count_);
    const double of_sample = count > 1 ? of.variance * count / (count - 1) : of.variance;
    const auto run = [&](std::uint64_t address, double value) {
      if (address == 0) return;
      const double factor = op_.running_factor;
      set_parameter(address, (factor == 1 ? 0 : (1 - factor) * parameter(address)) + factor * value);
    };
    run(op_.mean, of.mean);
    run(op_.variance, of_sample);
    if (op_.saved_mean != 0) set_parameter(op_.saved_mean, of.mean);
    if (op_.saved_deviation != 0)
      set_parameter(op_.saved_deviation, 1 / std::sqrt(of.variance + op_.epsilon));
  }

  /// The gradient of the output, without what the activation held back.
  N* gradient(const auto& at, const auto& strides, std::int64_t count) {
    N* const dy = read(at_dy, op_.dy, at, strides, count);
    if (op_.rectified) {
      const N* const y = read(at_y, op_.y, at, strides, count);
      for (std::int64_t i = 0; i < count; ++i) dy[i] = y[i] > N(0) ? dy[i] : N(0);
    }
    return dy;
  }

  void gradients() {
    double mean = 0, deviation = 0;
    if (op_.saved_mean != 0 && op_.saved_deviation != 0) {
      mean = parameter(op_.saved_mean);
      deviation = parameter(op_.saved_deviation);
    } else {
      const Statistics of = statistics();
      mean = of.mean;
      deviation = 1 / std::sqrt(of.variance + op_.epsilon);
    }
    double sum = 0, product = 0;
    std::vector<double> products(static_cast<std::size_t>(row_length));
    each_row([&](const auto& at, const auto& strides, std::int64_t count) {
      const N* const x = read(at_x, op_.x, at, strides, count);
      const N* const dy = gradient(at, strides, count);
      for (std::int64_t i = 0; i < count; ++i)
        products[static_cast<std::size_t>(i)] =
            static_cast<double>(dy[i]) * ((static_cast<double>(x[i]) - mean) * deviation);
      sum += sum_of(dy, count, [](double value) { return value; });
      product += sum_of(products.data(), count, [](double value) { return value; });
    });
    const auto count_of_all = static_cast<double>(count_);
    const double factor = parameter(op_.scale) * deviation;
    each_row([&](const auto& at, const auto& strides, std::int64_t count) {
      const N* const x = read(at_x, op_.x, at, strides, count);
      N* const dy = gradient(at, strides, count);
      N* const dx = rows_[at_dx].data();
      for (std::int64_t i = 0; i < count; ++i) {
        const double normal = (static_cast<double>(x[i]) - mean) * deviation;
        dx[i] =
            static_cast<N>(factor * (static_cast<double>(dy[i]) - (sum + normal * product) / count_of_all));
      }
      store(at_dx, op_.dx, at, strides, count, dx);
      if (op_.dz.address != 0) store(at_dz, op_.dz, at, strides, count, dy);
    });
    const auto set = [&](std::uint64_t address, double value) {
      const double before = op_.beta_parameters == 0 ? 0 : op_.beta_parameters * parameter(address);
      set_parameter(address, op_.alpha_parameters * value + before);
    };
    set(op_.scale_gradient, product);
    set(op_.bias_gradient, sum);
  }

  const BatchNormalization& op_;
  Walk channels_, within_;
  Loops<1> parameters_;
  std::int64_t count_ = 0, parameter_ = 0;
  typename Walk::Offsets base_{};
  std::vector<N> rows_[operands], before_;
};

template <class N>
void normalize(const BatchNormalization& op, const Parts& parts) {
  Normalized<N> normalized(op);
  parts.each(op.parts(), [&](std::uint64_t part) { normalized.part(part); });
}

}  // namespace

void run(const BatchNormalization& op, const Parts& parts, const Memory& memory) {
  check_normalization(op, memory);
  if (op.x.type == Element::f64) return normalize<double>(op, parts);
  return normalize<float>(op, parts);
}

}  // namespace softgpu::libraries
