// Softmax. A part has some of the sums.
#include "libraries/operations/softmax.h"

#include <cmath>
#include <string>
#include <vector>

#include "softgpu/libraries/loops.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sums.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Softmax;

enum : std::size_t { softmax_x, softmax_y, softmax_dy, softmax_operands };
using SoftmaxWalk = Loops<softmax_operands>;

/// All elements of one sum, in double precision.
class SoftmaxRow {
 public:
  SoftmaxRow(const SoftmaxWalk& along, const SoftmaxWalk::Offsets& base) : along_(along), base_(base) {}

  void read(const Tensor& tensor, std::size_t operand, std::vector<double>& into) const {
    into.resize(static_cast<std::size_t>(along_.elements()));
    each([&](const auto& at, const auto& strides, std::int64_t count, std::int64_t index) {
      read_row(tensor, at[operand], strides[operand], count, into.data() + index);
    });
  }
  void write(const Tensor& tensor, std::size_t operand, const std::vector<double>& from) const {
    each([&](const auto& at, const auto& strides, std::int64_t count, std::int64_t index) {
      write_row(tensor, at[operand], strides[operand], count, from.data() + index);
    });
  }

 private:
  template <class F>
  void each(F f) const {
    along_.each(0, along_.elements(),
                [&](const auto& offsets, const auto& strides, std::int64_t count, std::int64_t index) {
                  SoftmaxWalk::Offsets at = base_;
                  for (std::size_t t = 0; t < softmax_operands; ++t) at[t] += offsets[t];
                  f(at, strides, count, index);
                });
  }
  const SoftmaxWalk& along_;
  const SoftmaxWalk::Offsets base_;
};

void softmax_of(const Softmax& op, std::vector<double>& values) {
  double most = -HUGE_VAL;
  for (const double x : values) most = x > most || x != x ? x : most;
  const auto count = static_cast<std::int64_t>(values.size());
  const double sum = sum_of(values.data(), count, [&](double x) { return std::exp(x - most); });
  const double logarithm = std::log(sum);
  for (double& x : values) x = op.logarithm ? x - most - logarithm : std::exp(x - most) / sum;
}

/// `dy` becomes the gradient of the argument.
void softmax_gradient(const Softmax& op, const std::vector<double>& y, std::vector<double>& dy) {
  std::vector<double> products(dy);
  if (!op.logarithm) {
    for (std::size_t i = 0; i < dy.size(); ++i) products[i] *= y[i];
  }
  const double sum =
      sum_of(products.data(), static_cast<std::int64_t>(dy.size()), [](double x) { return x; });
  for (std::size_t i = 0; i < dy.size(); ++i)
    dy[i] = op.logarithm ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum);
}

}  // namespace

void run(const Softmax& op, const Parts& parts, const Memory& memory) {
  const Tensor& target = op.backward ? op.x : op.y;
  for (const auto& [tensor, what] : {std::pair{&op.x, "the argument"}, std::pair{&op.y, "the result"},
                                     std::pair{&op.dy, "the gradient of the result"}}) {
    if (tensor == &op.dy && !op.backward) continue;
    (tensor == &target ? check_written : check_tensor)(*tensor, memory, what);
    check_same_sizes(*tensor, op.y, what);
  }
  if (op.y.dims < 2) throw Failure(softgpu::Fault::illegal_instruction, "a softmax without channels");
  SoftmaxWalk sums, along;
  for (int i = 0; i < op.y.dims; ++i) {
    const bool summed = i == 1 || (i > 1 && op.of_instance);
    const std::int64_t gradient = op.backward ? op.dy.strides[i] : 0;  // else it has not been checked
    (summed ? along : sums).add(op.y.sizes[i], {op.x.strides[i], op.y.strides[i], gradient});
  }
  check_room(along.elements(), "a softmax");
  along.arrange(softmax_y);
  sums.arrange(softmax_y);
  std::vector<double> values, results, before;
  const std::int64_t all = sums.elements(), block = op.block();
  const std::size_t target_operand = op.backward ? softmax_x : softmax_y;
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::int64_t from = static_cast<std::int64_t>(part) * block;
    for (std::int64_t sum = from; sum < std::min(from + block, all); ++sum) {
      const SoftmaxRow row(along, sums.at(sum));
      if (op.backward) {
        row.read(op.y, softmax_y, results);
        row.read(op.dy, softmax_dy, values);
        softmax_gradient(op, results, values);
      } else {
        row.read(op.x, softmax_x, values);
        softmax_of(op, values);
      }
      for (double& value : values) value *= op.alpha;
      if (op.beta != 0) {
        row.read(target, target_operand, before);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += op.beta * before[i];
      }
      row.write(target, target_operand, values);
    }
  });
}

}  // namespace softgpu::libraries
