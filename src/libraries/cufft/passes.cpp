// Which operations a transform is: one for each dimension.
#include <algorithm>

#include "libraries/cufft/plan.h"

namespace gpupool::cufft {
namespace {

using operations::FftLoop;

/// Numbers of a side's last dimension as they lie without an advanced layout.
std::int64_t last_of(const Shape& shape, bool input, bool in_place) {
  const std::int64_t n = shape.n[shape.rank - 1];
  const FftKind real = input ? FftKind::real_to_complex : FftKind::complex_to_real;
  if (shape.type.kind == FftKind::complex) return n;
  if (shape.type.kind != real) return n / 2 + 1;
  return in_place ? 2 * (n / 2 + 1) : n;  // in place, real numbers leave room for the complex ones
}

Layout layout_of(const Shape& shape, bool input, bool in_place) {
  const std::optional<Layout>& advanced = input ? shape.input : shape.output;
  if (advanced) return *advanced;
  Layout made;
  std::int64_t apart = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    made.strides[i] = apart;
    apart *= i == shape.rank - 1 ? last_of(shape, input, in_place) : shape.n[i];
  }
  made.distance = apart;
  return made;
}

/// Loops that walk on where another ends are one with it. Then the first shall be one of neighbours, with
/// lines enough to be computed together.
void arrange(std::vector<FftLoop>& loops) {
  std::erase_if(loops, [](const FftLoop& loop) { return loop.count == 1; });
  std::sort(loops.begin(), loops.end(),
            [](const FftLoop& a, const FftLoop& b) { return a.output_stride < b.output_stride; });
  for (std::size_t i = 0; i + 1 < loops.size();) {
    FftLoop& inner = loops[i];
    const FftLoop& outer = loops[i + 1];
    if (outer.input_stride == inner.count * inner.input_stride &&
        outer.output_stride == inner.count * inner.output_stride) {
      inner.count *= outer.count;
      loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    } else {
      ++i;
    }
  }
  constexpr std::int64_t together = 8;
  const auto first =
      std::find_if(loops.begin(), loops.end(), [](const FftLoop& loop) { return loop.count >= together; });
  if (first != loops.end()) {
    std::rotate(loops.begin(), first, first + 1);
  } else {
    std::stable_sort(loops.begin(), loops.end(),
                     [](const FftLoop& a, const FftLoop& b) { return a.count > b.count; });
  }
}

/// The lines of one dimension, from one side to another, or to itself.
Fft pass(const Shape& shape, int dimension, FftKind kind, int sign, std::uint64_t input, const Layout& from,
         std::uint64_t output, const Layout& to) {
  Fft made;
  made.input = input;
  made.output = output;
  made.length = shape.n[dimension];
  made.input_stride = from.strides[dimension];
  made.output_stride = to.strides[dimension];
  made.sign = sign;
  made.kind = kind;
  made.precision = shape.type.precision;
  std::vector<FftLoop> loops{{shape.batch, from.distance, to.distance}};
  for (int i = 0; i < shape.rank; ++i) {
    if (i == dimension) continue;
    const bool half = i == shape.rank - 1 && shape.type.kind != FftKind::complex;
    loops.push_back({half ? shape.n[i] / 2 + 1 : shape.n[i], from.strides[i], to.strides[i]});
  }
  arrange(loops);
  std::copy(loops.begin(), loops.end(), made.loops);
  return made;
}

}  // namespace

std::vector<Fft> operations_of(const Shape& shape, std::uint64_t input, std::uint64_t output, int sign) {
  const bool in_place = input == output;
  const Layout from = layout_of(shape, true, in_place), to = layout_of(shape, false, in_place);
  const int last = shape.rank - 1;
  std::vector<Fft> made;
  if (shape.type.kind == FftKind::complex_to_real) {
    for (int i = 0; i < last; ++i)
      made.push_back(pass(shape, i, FftKind::complex, 1, input, from, input, from));
    made.push_back(pass(shape, last, shape.type.kind, 1, input, from, output, to));
    return made;
  }
  const int direction = shape.type.kind == FftKind::real_to_complex ? -1 : sign;
  made.push_back(pass(shape, last, shape.type.kind, direction, input, from, output, to));
  for (int i = last - 1; i >= 0; --i)
    made.push_back(pass(shape, i, FftKind::complex, direction, output, to, output, to));
  return made;
}

}  // namespace gpupool::cufft
