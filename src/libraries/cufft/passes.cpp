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

/// How many numbers the columns of a long line's matrix have; 0: it is computed as any other. Lines that are
/// many keep all threads at work by themselves.
std::int64_t columns_of(const Shape& shape) {
  constexpr std::int64_t long_line = 1 << 16, few_lines = 8, least = 64;
  const std::int64_t n = shape.n[0];
  if (shape.type.kind != FftKind::complex || shape.type.precision == FftPrecision::half || shape.rank != 1 ||
      n < long_line || shape.batch >= few_lines)
    return 0;
  std::int64_t rest = n;
  for (std::int64_t factor = 2; factor <= 31 && rest > 1;) {
    if (rest % factor == 0) {
      rest /= factor;
    } else {
      ++factor;
    }
  }
  if (rest != 1) return 0;  // of a length that is computed as a longer one
  std::int64_t column = 1;
  for (std::int64_t i = least; i * i <= n; ++i) {
    if (n % i == 0) column = i;
  }
  return column >= least ? column : 0;
}

std::size_t bytes_of_number(const Shape& shape) {
  return shape.type.precision == FftPrecision::double_ ? 16 : 8;
}

/// A long line is a matrix: its columns are transformed into the work area and turned, then its rows.
std::vector<Fft> columns_and_rows(const Shape& shape, std::uint64_t input, const Layout& from,
                                  std::uint64_t work, std::uint64_t output, const Layout& to, int sign) {
  const std::int64_t n = shape.n[0], column = shape.column, row = n / column;
  Fft columns, rows;
  columns.sign = rows.sign = sign;
  columns.precision = rows.precision = shape.type.precision;
  columns.input = input;
  columns.output = rows.input = work;
  columns.length = column;
  columns.input_stride = row * from.strides[0];
  columns.output_stride = row;
  columns.twiddle = n;
  columns.loops[0] = {row, from.strides[0], 1};
  columns.loops[1] = {shape.batch, from.distance, n};
  rows.output = output;
  rows.length = row;
  rows.after_columns = true;
  rows.output_stride = column * to.strides[0];
  rows.loops[0] = {column, row, to.strides[0]};
  rows.loops[1] = {shape.batch, n, to.distance};
  return {columns, rows};
}

}  // namespace

void divide(Shape& shape) {
  shape.column = columns_of(shape);
}

std::size_t work_bytes(const Shape& shape) {
  if (shape.column == 0) return 0;
  return static_cast<std::size_t>(shape.n[0] * shape.batch) * bytes_of_number(shape);
}

std::vector<Fft> operations_of(const Shape& shape, std::uint64_t input, std::uint64_t output,
                               std::uint64_t work, int sign) {
  const bool in_place = input == output;
  const Layout from = layout_of(shape, true, in_place), to = layout_of(shape, false, in_place);
  const int last = shape.rank - 1;
  if (shape.column != 0 && work != 0) return columns_and_rows(shape, input, from, work, output, to, sign);
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
