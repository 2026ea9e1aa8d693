// Pooling. A part has some planes: a channel of an image each.
#include "libraries/operations/pooling.h"

#include <cmath>
#include <string>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Pool;
using gpupool::operations::Pooling;

[[noreturn]] void wrong_pooling(const char* why) {
  throw Failure(softgpu::Fault::illegal_instruction, std::string("pooling: ") + why);
}

void check_pooling(const Pooling& op, const Memory& memory) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (op.x.dims != 2 + Pooling::space || op.y.dims != op.x.dims) wrong_pooling("not five dimensions");
  check_tensor(op.x, memory, "the input");
  (op.backward ? check_tensor : check_written)(op.y, memory, "the output");
  for (const Tensor* const tensor : {&op.x, &op.y})
    check_room(tensor->sizes[2] * tensor->sizes[3] * tensor->sizes[4], "a plane of a pooling");
  if (op.x.sizes[0] != op.y.sizes[0] || op.x.sizes[1] != op.y.sizes[1])
    wrong_pooling("images or channels do not fit");
  for (int d = 0; d < Pooling::space; ++d) {
    if (op.window[d] < 1 || op.window[d] > most || op.stride[d] < 1 || op.stride[d] > most ||
        op.padding[d] < 0 || op.padding[d] > most || op.y.sizes[2 + d] > most)
      wrong_pooling("a window, a stride or a padding out of range");
  }
  if (op.pool > Pool::average) wrong_pooling("there is no such kind");
  if (!op.backward) return;
  check_tensor(op.dy, memory, "the gradient of the output");
  check_written(op.dx, memory, "the gradient of the input");
  check_same_sizes(op.dy, op.y, "the gradient of the output");
  check_same_sizes(op.dx, op.x, "the gradient of the input");
}

/// A plane of a tensor as numbers that lie side by side.
class Plane {
 public:
  Plane(const Tensor& tensor, std::int64_t index) : tensor_(tensor) {
    offset_ = index / tensor.sizes[1] * tensor.strides[0] + index % tensor.sizes[1] * tensor.strides[1];
  }
  void read(std::vector<double>& into) const {
    into.resize(static_cast<std::size_t>(tensor_.sizes[2] * tensor_.sizes[3] * tensor_.sizes[4]));
    each([&](std::int64_t at, std::int64_t index) {
      read_row(tensor_, at, tensor_.strides[4], tensor_.sizes[4], into.data() + index);
    });
  }
  /// tensor = alpha · values + beta · tensor.
  void write(std::vector<double>& values, double alpha, double beta) const {
    for (double& value : values) value *= alpha;
    if (beta != 0) {
      std::vector<double> before;
      read(before);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += beta * before[i];
    }
    each([&](std::int64_t at, std::int64_t index) {
      write_row(tensor_, at, tensor_.strides[4], tensor_.sizes[4], values.data() + index);
    });
  }

 private:
  template <class F>
  void each(F f) const {
    std::int64_t index = 0;
    for (std::int64_t d = 0; d < tensor_.sizes[2]; ++d) {
      for (std::int64_t h = 0; h < tensor_.sizes[3]; ++h) {
        f(offset_ + d * tensor_.strides[2] + h * tensor_.strides[3], index);
        index += tensor_.sizes[4];
      }
    }
  }
  const Tensor& tensor_;
  std::int64_t offset_;
};

/// What the window of one result covers of an axis.
struct Covered {
  std::int64_t from, to;
};
Covered covered(const Pooling& op, int d, std::int64_t result) {
  const std::int64_t start = result * op.stride[d] - op.padding[d];
  return {std::max<std::int64_t>(start, 0), std::min(start + op.window[d], op.x.sizes[2 + d])};
}

/// f(result, element, whether it is the first) for each element of each window; done(result, number of
/// elements).
template <class F, class Done>
void each_window(const Pooling& op, F f, Done done) {
  std::int64_t result = 0;
  for (std::int64_t d = 0; d < op.y.sizes[2]; ++d) {
    for (std::int64_t h = 0; h < op.y.sizes[3]; ++h) {
      for (std::int64_t w = 0; w < op.y.sizes[4]; ++w, ++result) {
        const Covered of_d = covered(op, 0, d), of_h = covered(op, 1, h), of_w = covered(op, 2, w);
        std::int64_t count = 0;
        for (std::int64_t i = of_d.from; i < of_d.to; ++i) {
          for (std::int64_t j = of_h.from; j < of_h.to; ++j) {
            for (std::int64_t k = of_w.from; k < of_w.to; ++k, ++count)
              f(result, (i * op.x.sizes[3] + j) * op.x.sizes[4] + k, count == 0);
          }
        }
        done(result, count);
      }
    }
  }
}

class Pooled {
 public:
  explicit Pooled(const Pooling& op) : op_(op) {}

  void plane(std::int64_t index) {
    Plane(op_.x, index).read(x_);
    const auto results = static_cast<std::size_t>(op_.y.sizes[2] * op_.y.sizes[3] * op_.y.sizes[4]);
    if (op_.backward) {
      Plane(op_.dy, index).read(dy_);
      dx_.assign(x_.size(), 0);
      op_.pool == Pool::maximum ? spread_to_maxima(results) : spread();
      Plane(op_.dx, index).write(dx_, op_.alpha, op_.beta);
      return;
    }
    y_.assign(results, op_.pool == Pool::maximum ? -HUGE_VAL : 0);
    each_window(
        op_,
        [&](std::int64_t result, std::int64_t element, bool) {
          double& y = y_[static_cast<std::size_t>(result)];
          const double x = x_[static_cast<std::size_t>(element)];
          y = op_.pool == Pool::maximum ? (x > y || x != x ? x : y) : y + x;
        },
        [&](std::int64_t result, std::int64_t count) {
          if (op_.pool != Pool::maximum) y_[static_cast<std::size_t>(result)] /= divisor(count);
        });
    Plane(op_.y, index).write(y_, op_.alpha, op_.beta);
  }

 private:
  [[nodiscard]] double divisor(std::int64_t count) const {
    if (op_.pool == Pool::average_with_padding) count = op_.window[0] * op_.window[1] * op_.window[2];
    return static_cast<double>(count);
  }

  /// Each gradient goes to the first of the largest elements.
  void spread_to_maxima(std::size_t results) {
    first_.assign(results, -1);
    each_window(
        op_,
        [&](std::int64_t result, std::int64_t element, bool first) {
          std::int64_t& at = first_[static_cast<std::size_t>(result)];
          if (first || x_[static_cast<std::size_t>(element)] > x_[static_cast<std::size_t>(at)]) at = element;
        },
        [&](std::int64_t result, std::int64_t count) {
          if (count != 0)
            dx_[static_cast<std::size_t>(first_[static_cast<std::size_t>(result)])] +=
                dy_[static_cast<std::size_t>(result)];
        });
  }
  void spread() {
    std::vector<std::int64_t> window;
    each_window(
        op_, [&](std::int64_t, std::int64_t element, bool) { window.push_back(element); },
        [&](std::int64_t result, std::int64_t count) {
          const double share = count == 0 ? 0 : dy_[static_cast<std::size_t>(result)] / divisor(count);
          for (const std::int64_t element : window) dx_[static_cast<std::size_t>(element)] += share;
          window.clear();
        });
  }

  const Pooling& op_;
  std::vector<double> x_, y_, dy_, dx_;
  std::vector<std::int64_t> first_;
};

}  // namespace

void run(const Pooling& op, const Parts& parts, const Memory& memory) {
  check_pooling(op, memory);
  Pooled pooled(op);
  const std::int64_t block = op.block();
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::int64_t from = static_cast<std::int64_t>(part) * block;
    for (std::int64_t plane = from; plane < std::min(from + block, op.planes()); ++plane) pooled.plane(plane);
  });
}

}  // namespace softgpu::libraries
