// Local response normalisation. A part has some lines, each of them with all channels.
#include "libraries/operations/response_normalization.h"

#include <cmath>
#include <string>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::ResponseNormalization;
using Numbers = std::vector<double>;

[[noreturn]] void wrong_normalization(const char* why) {
  throw Failure(softgpu::Fault::illegal_instruction, std::string("response normalisation: ") + why);
}

void check_normalization(const ResponseNormalization& op, const Memory& memory) {
  if (op.x.dims != 2 + ResponseNormalization::space) wrong_normalization("not five dimensions");
  check_tensor(op.x, memory, "the input");
  // Channels of a line lie in host memory together.
  check_room(op.x.sizes[1] * op.x.sizes[4], "response normalisation");
  for (const auto& [tensor, what] : {std::pair{&op.y, "the output"},
                                     {&op.dy, "the gradient of the output"},
                                     {&op.dx, "the gradient of the input"}}) {
    if (tensor != &op.y && !op.backward) continue;
    const bool written = tensor == (op.backward ? &op.dx : &op.y);
    (written ? check_written : check_tensor)(*tensor, memory, what);
    check_same_sizes(*tensor, op.x, what);
  }
}

class Normalized {
 public:
  explicit Normalized(const ResponseNormalization& op)
      : op_(op), channels_(op.x.sizes[1]), width_(op.x.sizes[4]) {}

  void line(std::int64_t index) {
    read(op_.x, index, x_);
    set_scales();
    made_.resize(x_.size());
    if (!op_.backward) {
      for (std::size_t i = 0; i < x_.size(); ++i) made_[i] = x_[i] * std::pow(scales_[i], -op_.exponent);
      return write(op_.y, index);
    }
    read(op_.dy, index, dy_);
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const double power = std::pow(scales_[i], -op_.exponent);
      made_[i] = dy_[i] * power;
      squares_[i] = dy_[i] * x_[i] * power / scales_[i];
    }
    // An element is in the windows of as many channels behind it as windows have before their own.
    sum_windows(op_.behind(), op_.before());
    const double factor = 2 * op_.coefficient / static_cast<double>(op_.window) * op_.exponent;
    for (std::size_t i = 0; i < x_.size(); ++i) made_[i] -= factor * x_[i] * scales_[i];
    write(op_.dx, index);
  }

 private:
  [[nodiscard]] std::int64_t offset(const Tensor& of, std::int64_t line) const {
    const std::int64_t rows = op_.x.sizes[3], planes = op_.x.sizes[2];
    return line / rows / planes * of.strides[0] + line / rows % planes * of.strides[2] +
           line % rows * of.strides[3];
  }
  void read(const Tensor& from, std::int64_t line, Numbers& into) const {
    into.resize(static_cast<std::size_t>(channels_ * width_));
    for (std::int64_t channel = 0; channel < channels_; ++channel) {
      read_row(from, offset(from, line) + channel * from.strides[1], from.strides[4], width_,
               into.data() + channel * width_);
    }
  }
  /// tensor = alpha · what was made + beta · tensor.
  void write(const Tensor& into, std::int64_t line) {
    for (double& value : made_) value *= op_.alpha;
    if (op_.beta != 0) {
      read(into, line, before_);
      for (std::size_t i = 0; i < made_.size(); ++i) made_[i] += op_.beta * before_[i];
    }
    for (std::int64_t channel = 0; channel < channels_; ++channel) {
      write_row(into, offset(into, line) + channel * into.strides[1], into.strides[4], width_,
                made_.data() + channel * width_);
    }
  }

  /// scales_ = the sums of squares_ over so many channels before and behind each one.
  void sum_windows(std::int64_t before, std::int64_t behind) {
    scales_.assign(squares_.size(), 0);
    for (std::int64_t channel = 0; channel < channels_; ++channel) {
      double* const sums = scales_.data() + channel * width_;
      const std::int64_t last = std::min(channel + behind, channels_ - 1);
      for (std::int64_t other = std::max<std::int64_t>(channel - before, 0); other <= last; ++other) {
        const double* const terms = squares_.data() + other * width_;
        for (std::int64_t i = 0; i < width_; ++i) sums[i] += terms[i];
      }
    }
  }
  void set_scales() {
    squares_.resize(x_.size());
    for (std::size_t i = 0; i < x_.size(); ++i) squares_[i] = x_[i] * x_[i];
    sum_windows(op_.before(), op_.behind());
    const double factor = op_.coefficient / static_cast<double>(op_.window);
    for (double& scale : scales_) scale = op_.k + factor * scale;
  }

  const ResponseNormalization& op_;
  const std::int64_t channels_, width_;
  Numbers x_, dy_, made_, before_, squares_, scales_;
};

}  // namespace

void run(const ResponseNormalization& op, const Parts& parts, const Memory& memory) {
  check_normalization(op, memory);
  Normalized normalized(op);
  const std::int64_t block = op.block();
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::int64_t from = static_cast<std::int64_t>(part) * block;
    for (std::int64_t line = from; line < std::min(from + block, op.lines()); ++line) normalized.line(line);
  });
}

}  // namespace softgpu::libraries
