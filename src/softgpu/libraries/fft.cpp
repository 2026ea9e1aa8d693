// Fourier transforms. A part is some lines, which are read, transformed in groups or one by one, and stored.
#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>

#include "libraries/operations/fft.h"
#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/fft_plan.h"
#include "softgpu/libraries/operations.h"

namespace softgpu::libraries {
namespace {

using fft::Numbers;
using gpupool::operations::Fft;
using gpupool::operations::FftKind;
using gpupool::operations::FftLoop;
using gpupool::operations::FftPrecision;

[[noreturn]] void refuse(const char* why) {
  throw Failure(softgpu::Fault::illegal_instruction, why);
}

/// Where a side's number `index` of the line that lies at `base` is: in real or in complex numbers.
struct Side {
  std::uint64_t address;
  std::int64_t stride, line_stride;  // between numbers of a line, and lines of the first loop
};

std::int64_t numbers_of(const Fft& op, bool input) {
  const bool real = op.kind == (input ? FftKind::real_to_complex : FftKind::complex_to_real);
  return op.kind == FftKind::complex || real ? op.length : op.length / 2 + 1;
}

void validate(const Fft& op) {
  constexpr std::int64_t most = gpupool::operations::max_size;
  const auto fits = [](std::int64_t value, std::int64_t least) { return value >= least && value <= most; };
  if (static_cast<int>(op.precision) > 2 || static_cast<int>(op.kind) > 2)
    refuse("no such kind of transform");
  if (op.sign != -1 && op.sign != 1) refuse("a direction that is none");
  if (!fits(op.length, 1) || !fits(op.twiddle, 0)) refuse("a length that is none");
  if (op.twiddle != 0 && op.kind != FftKind::complex) refuse("a part of a long line of real numbers");
  if (!fits(op.input_stride, 1) || !fits(op.output_stride, 1)) refuse("numbers that lie on each other");
  std::int64_t lines = 1;
  for (const FftLoop& loop : op.loops) {
    if (!fits(loop.count, 0) || !fits(loop.input_stride, 0) || !fits(loop.output_stride, 0))
      refuse("a number of lines that is none");
    if (loop.count > 1 && loop.output_stride == 0) refuse("lines that lie on each other");
    if (loop.count != 0 && lines > most / loop.count) refuse("too many lines");
    lines *= loop.count;
  }
}

/// Everything that the operation touches on one side.
void check(const Fft& op, bool input, std::size_t bytes, const Memory& memory) {
  unsigned __int128 last = static_cast<unsigned __int128>(numbers_of(op, input) - 1) *
                           static_cast<std::uint64_t>(input ? op.input_stride : op.output_stride);
  for (const FftLoop& loop : op.loops) {
    last += static_cast<unsigned __int128>(loop.count - 1) *
            static_cast<std::uint64_t>(input ? loop.input_stride : loop.output_stride);
  }
  if (last >> 56 != 0) throw Failure(softgpu::Fault::illegal_address, "a transform larger than any memory");
  const std::uint64_t address = input ? op.input : op.output;
  memory.check(address, (static_cast<std::uint64_t>(last) + 1) * bytes, 1,
               input ? "the input" : "the output");
  // Complex numbers are as aligned as their parts have to be.
  memory.check(
      address, 1,
      std::min<std::size_t>(
          bytes, op.precision == FftPrecision::double_ ? 8 : 4 >> (op.precision == FftPrecision::half)),
      input ? "the input" : "the output");
}

/// T: the numbers that are computed with. S: how they are stored.
template <class T, class S>
class Lines {
 public:
  Lines(const Fft& op, const Memory& memory) : op_(op) {
    const auto bytes = [&](FftKind real) { return op.kind == real ? sizeof(S) : 2 * sizeof(S); };
    check(op, true, bytes(FftKind::real_to_complex), memory);
    check(op, false, bytes(FftKind::complex_to_real), memory);
    prepared_ = fft::prepared<T>(op);  // as large as what has been found to be memory
    input_bytes_ = bytes(FftKind::real_to_complex);
    output_bytes_ = bytes(FftKind::complex_to_real);
    in_pairs_ = op.kind != FftKind::complex && op.length % 2 == 0;
  }

  ~Lines() {
    room_.trim();
    space_.trim();
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  void run(std::uint64_t part) {
    const auto per_part = static_cast<std::uint64_t>(op_.lines_of_a_part());
    const auto parts_of_first = static_cast<std::uint64_t>(op_.parts_of_first());
    const std::uint64_t first = part % parts_of_first * per_part;
    std::uint64_t rest = part / parts_of_first, from = 0, to = 0;
    for (int i = 1; i < Fft::max_loops; ++i) {
      const FftLoop& loop = op_.loops[i];
      const std::uint64_t index = rest % static_cast<std::uint64_t>(loop.count);
      rest /= static_cast<std::uint64_t>(loop.count);
      from += index * static_cast<std::uint64_t>(loop.input_stride);
      to += index * static_cast<std::uint64_t>(loop.output_stride);
    }
    const std::uint64_t end = std::min(first + per_part, static_cast<std::uint64_t>(op_.loops[0].count));
    const std::uint64_t step = prepared_->plan.one_by_one() ? 1 : fft::lanes<T>;
    for (std::uint64_t line = first; line < end; line += step) {
      from_ = reinterpret_cast<const S*>(
          op_.input + (from + line * static_cast<std::uint64_t>(op_.loops[0].input_stride)) * input_bytes_);
      to_ = reinterpret_cast<S*>(
          op_.output + (to + line * static_cast<std::uint64_t>(op_.loops[0].output_stride)) * output_bytes_);
      if (step == 1) {
        one(line);
      } else {
        group(line, std::min<std::size_t>(fft::lanes<T>, end - line));
      }
    }
  }

 private:
  /// Half the numbers, and one, when they are taken in pairs.
  [[nodiscard]] std::size_t length() const { return prepared_->plan.length(); }

  void one(std::uint64_t line) {
    const std::size_t size = length() + 8;
    T* const space = space_.of(2 * size);
    T *const re = space, *const im = space + size;
    load<1>(re, im, 1);
    if (op_.sign == -1) {
      prepared_->plan.line(re, im, room_);
    } else {
      prepared_->plan.line(im, re, room_);
    }
    finish<1>(re, im, 1, line);
  }

  void group(std::uint64_t line, std::size_t count) {
    constexpr std::size_t width = fft::lanes<T>;
    const std::size_t size = (length() + 1) * width;
    T* const space = space_.of(4 * size);
    Numbers<T> numbers{space, space + size, space + 2 * size, space + 3 * size};
    load<width>(numbers.re, numbers.im, count);
    if (op_.sign == 1) numbers.exchange_parts();
    prepared_->plan.group(numbers, room_);
    if (op_.sign == 1) numbers.exchange_parts();
    finish<width>(numbers.re, numbers.im, count, line);
  }

  template <std::size_t line_count>
  void load(T* re, T* im, std::size_t count) {
    switch (op_.kind) {
      case FftKind::complex:
        read<line_count>(re, im, count, length(), 2 * op_.input_stride, 1, 2 * op_.loops[0].input_stride);
        break;
      case FftKind::real_to_complex:
        if (in_pairs_) {
          read<line_count>(re, im, count, length(), 2 * op_.input_stride, op_.input_stride,
                           op_.loops[0].input_stride);
        } else {
          read<line_count>(re, im, count, length(), op_.input_stride, 0, op_.loops[0].input_stride);
          std::fill(im, im + length() * line_count, T(0));
        }
        break;
      case FftKind::complex_to_real: {
        const auto stored = static_cast<std::size_t>(op_.length / 2 + 1);
        read<line_count>(re, im, count, stored, 2 * op_.input_stride, 1, 2 * op_.loops[0].input_stride);
        std::fill(im, im + line_count, T(0));  // it has no meaning, and no part in the result
        if (in_pairs_) {
          std::fill(im + (stored - 1) * line_count, im + stored * line_count, T(0));
          pair_before<line_count>(re, im);
        } else {
          for (std::size_t k = stored; k < length(); ++k) {
            for (std::size_t i = 0; i < line_count; ++i) {
              re[k * line_count + i] = re[(length() - k) * line_count + i];
              im[k * line_count + i] = -im[(length() - k) * line_count + i];
            }
          }
        }
      }
    }
  }

  template <std::size_t line_count>
  void finish(T* re, T* im, std::size_t count, std::uint64_t line) {
    switch (op_.kind) {
      case FftKind::complex:
        if (prepared_->twiddles != nullptr) twist<line_count>(re, im, line);
        write<line_count>(re, im, count, length(), 2 * op_.output_stride, 1, 2 * op_.loops[0].output_stride);
        break;
      case FftKind::real_to_complex:
        if (in_pairs_) pair_after<line_count>(re, im);
        write<line_count>(re, im, count, static_cast<std::size_t>(op_.length / 2 + 1), 2 * op_.output_stride,
                          1, 2 * op_.loops[0].output_stride);
        break;
      case FftKind::complex_to_real:
        if (in_pairs_) {
          write<line_count>(re, im, count, length(), 2 * op_.output_stride, op_.output_stride,
                            op_.loops[0].output_stride);
        } else {
          write<line_count>(re, nullptr, count, length(), op_.output_stride, 0, op_.loops[0].output_stride);
        }
    }
  }

  /// Calls f with where a number is in memory, in elements of S, and where among those of the lines.
  template <std::size_t line_count, class F>
  static void each(std::size_t count, std::size_t length, std::int64_t stride, std::int64_t line_stride,
                   F f) {
    if (line_count == 1 || line_stride <= stride) {
      for (std::size_t k = 0; k < length; ++k) {
        const std::int64_t at = static_cast<std::int64_t>(k) * stride;
        for (std::size_t i = 0; i < count; ++i)
          f(at + static_cast<std::int64_t>(i) * line_stride, k * line_count + i);
      }
      return;
    }
    constexpr std::size_t block = 32;  // what a line has in a few cache lines
    for (std::size_t first = 0; first < length; first += block) {
      const std::size_t end = std::min(first + block, length);
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t at = static_cast<std::int64_t>(i) * line_stride;
        for (std::size_t k = first; k < end; ++k)
          f(at + static_cast<std::int64_t>(k) * stride, k * line_count + i);
      }
    }
  }

  /// `im_at`: how far imaginary parts lie behind real ones; 0: there are none.
  template <std::size_t line_count>
  void read(T* re, T* im, std::size_t count, std::size_t length, std::int64_t stride, std::int64_t im_at,
            std::int64_t line_stride) {
    if (count < line_count)
      std::fill(re, re + length * line_count, T(0)), std::fill(im, im + length * line_count, T(0));
    const S* const from = from_;
    if constexpr (line_count != 1 && std::is_same_v<S, T>) {
      if (count == line_count && im_at == 1 && stride == 2)
        return fft::read(from, fft::Rows{line_stride}, length, re, im);
      if (count == line_count && im_at == 1 && line_stride == 2)
        return fft::read(from, fft::Columns{stride}, length, re, im);
    }
    if (im_at == 0) {
      each<line_count>(count, length, stride, line_stride,
                       [=](std::int64_t at, std::size_t i) { re[i] = to_number<T>(from[at]); });
    } else if (im_at == 1) {
      each<line_count>(count, length, stride, line_stride, [=](std::int64_t at, std::size_t i) {
        re[i] = to_number<T>(from[at]);
        im[i] = to_number<T>(from[at + 1]);
      });
    } else {
      each<line_count>(count, length, stride, line_stride, [=](std::int64_t at, std::size_t i) {
        re[i] = to_number<T>(from[at]);
        im[i] = to_number<T>(from[at + im_at]);
      });
    }
  }

  template <std::size_t line_count>
  void write(const T* re, const T* im, std::size_t count, std::size_t length, std::int64_t stride,
             std::int64_t im_at, std::int64_t line_stride) {
    S* const to = to_;
    if constexpr (line_count != 1 && std::is_same_v<S, T>) {
      if (count == line_count && im_at == 1 && stride == 2)
        return fft::write(to, fft::Rows{line_stride}, length, re, im);
      if (count == line_count && im_at == 1 && line_stride == 2)
        return fft::write(to, fft::Columns{stride}, length, re, im);
    }
    if (im_at == 0) {
      each<line_count>(count, length, stride, line_stride,
                       [=](std::int64_t at, std::size_t i) { to[at] = to_element<S>(re[i]); });
    } else {
      each<line_count>(count, length, stride, line_stride, [=](std::int64_t at, std::size_t i) {
        to[at] = to_element<S>(re[i]);
        to[at + im_at] = to_element<S>(im[i]);
      });
    }
  }

  template <std::size_t line_count>
  void twist(T* re, T* im, std::uint64_t line) {
    if (op_.sign == 1) std::swap(re, im);
    if constexpr (line_count == 1) {
      // Such lines are too long to be parts of a longer one: this need not be fast.
      constexpr std::size_t width = fft::lanes<T>;
      T* const space = room_.turned.of(2 * length() * width);
      T *const wide_re = space, *const wide_im = space + length() * width;
      for (std::size_t k = 0; k < length(); ++k) {
        wide_re[k * width] = re[k];
        wide_im[k * width] = im[k];
      }
      prepared_->twiddles->apply(wide_re, wide_im, line);
      for (std::size_t k = 0; k < length(); ++k) {
        re[k] = wide_re[k * width];
        im[k] = wide_im[k * width];
      }
    } else {
      prepared_->twiddles->apply(re, im, line);
    }
  }

  /// The transform of pairs of real numbers becomes that of the numbers.
  template <std::size_t line_count>
  void pair_after(T* re, T* im) {
    const std::size_t half = length();
    const T* const roots = prepared_->half_roots.data();
    for (std::size_t i = 0; i < line_count; ++i) {
      const T first = re[i], second = im[i];
      re[i] = first + second;
      im[i] = T(0);
      re[half * line_count + i] = first - second;
      im[half * line_count + i] = T(0);
    }
    for (std::size_t k = 1; k <= half / 2; ++k) {
      const T c = roots[2 * k], s = roots[2 * k + 1];
      T *const a_re = re + k * line_count, *const a_im = im + k * line_count,
               *const b_re = re + (half - k) * line_count, *const b_im = im + (half - k) * line_count;
      for (std::size_t i = 0; i < line_count; ++i) {
        const T even_re = (a_re[i] + b_re[i]) * T(0.5), even_im = (a_im[i] - b_im[i]) * T(0.5);
        // -i/2 · (a - conj b)
        const T odd_re = (a_im[i] + b_im[i]) * T(0.5), odd_im = (b_re[i] - a_re[i]) * T(0.5);
        const T turned_re = odd_re * c - odd_im * s, turned_im = odd_re * s + odd_im * c;
        a_re[i] = even_re + turned_re;
        a_im[i] = even_im + turned_im;
        b_re[i] = even_re - turned_re;
        b_im[i] = turned_im - even_im;
      }
    }
  }

  /// The other way round, times two.
  template <std::size_t line_count>
  void pair_before(T* re, T* im) {
    const std::size_t half = length();
    const T* const roots = prepared_->half_roots.data();
    for (std::size_t i = 0; i < line_count; ++i) {
      const T first = re[i], last = re[half * line_count + i];
      re[i] = first + last;
      im[i] = first - last;
    }
    for (std::size_t k = 1; k <= half / 2; ++k) {
      const T c = roots[2 * k], s = roots[2 * k + 1];
      T *const a_re = re + k * line_count, *const a_im = im + k * line_count,
               *const b_re = re + (half - k) * line_count, *const b_im = im + (half - k) * line_count;
      for (std::size_t i = 0; i < line_count; ++i) {
        const T even_re = a_re[i] + b_re[i], even_im = a_im[i] - b_im[i];
        const T difference_re = a_re[i] - b_re[i], difference_im = a_im[i] + b_im[i];
        // e^(+2πi k / length) · (a - conj b), then times i
        const T odd_re = difference_re * c + difference_im * s,
                odd_im = difference_im * c - difference_re * s;
        a_re[i] = even_re - odd_im;
        a_im[i] = even_im + odd_re;
        b_re[i] = even_re + odd_im;
        b_im[i] = odd_re - even_im;
      }
    }
  }

  const Fft& op_;
  std::shared_ptr<const fft::Prepared<T>> prepared_;
  std::size_t input_bytes_, output_bytes_;
  bool in_pairs_;
  const S* from_ = nullptr;
  S* to_ = nullptr;
  // Kept from part to part, as long as it is not large.
  static inline thread_local fft::Room<T> room_;
  static inline thread_local fft::Space<T> space_;
};

template <class T, class S>
void run_part(Lines<T, S>& lines, std::uint64_t part) {
  lines.run(part);
}
#if defined(__x86_64__)
// What it calls is inlined, so that numbers are read and stored with these instructions too.
template <class T, class S>
__attribute__((target("avx2"), flatten)) void run_part_with_avx2(Lines<T, S>& lines, std::uint64_t part) {
  lines.run(part);
}
#endif

template <class T, class S>
void run_in(const Fft& op, const Parts& parts, const Memory& memory) {
  Lines<T, S> lines(op, memory);
  auto* run = &run_part<T, S>;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) run = &run_part_with_avx2<T, S>;
#endif
  parts.each(op.parts(), [&](std::uint64_t part) { run(lines, part); });
}

}  // namespace

void run(const Fft& op, const Parts& parts, const Memory& memory) {
  validate(op);
  for (const FftLoop& loop : op.loops) {
    if (loop.count == 0) return;
  }
  switch (op.precision) {
    case FftPrecision::half:
      return run_in<float, Half>(op, parts, memory);
    case FftPrecision::single_:
      return run_in<float, float>(op, parts, memory);
    case FftPrecision::double_:
      return run_in<double, double>(op, parts, memory);
  }
}

}  // namespace softgpu::libraries
