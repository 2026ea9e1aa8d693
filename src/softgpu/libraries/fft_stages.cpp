#include "softgpu/libraries/fft_stages.h"

// Everything is inlined into one function for each instruction set. Products and sums are not contracted, so
// all of them compute the same.
#define GPUPOOL_FFT_INLINE inline __attribute__((always_inline))

namespace softgpu::libraries::fft {
namespace {

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(32)));
};

/// One complex number of each line.
template <class V>
struct Complex {
  V re, im;
};

template <class V>
GPUPOOL_FFT_INLINE void add_and_subtract(Complex<V>& a, Complex<V>& b) {
  const Complex<V> difference{a.re - b.re, a.im - b.im};
  a.re += b.re;
  a.im += b.im;
  b = difference;
}

template <class V>
GPUPOOL_FFT_INLINE void times_minus_i(Complex<V>& a) {
  const V re = a.re;
  a.re = a.im;
  a.im = -re;
}

template <class V>
GPUPOOL_FFT_INLINE void combine_4(Complex<V>& a, Complex<V>& b, Complex<V>& c, Complex<V>& d) {
  add_and_subtract(a, c);
  add_and_subtract(b, d);
  times_minus_i(d);
  add_and_subtract(a, b);
  add_and_subtract(c, d);
  // Now a, c, b, d are outputs 0, 1, 2, 3.
  const Complex<V> second = c;
  c = b;
  b = second;
}

template <class V, class T>
GPUPOOL_FFT_INLINE void combine_8(Complex<V>* x) {
  constexpr T half_root = T(0.70710678118654752440084436210485L);
  for (int k = 0; k < 4; ++k) add_and_subtract(x[k], x[k + 4]);
  const Complex<V> b = x[5], d = x[7];
  x[5] = {(b.re + b.im) * half_root, (b.im - b.re) * half_root};
  times_minus_i(x[6]);
  x[7] = {(d.im - d.re) * half_root, -(d.re + d.im) * half_root};
  combine_4(x[0], x[1], x[2], x[3]);
  combine_4(x[4], x[5], x[6], x[7]);
  const Complex<V> y[8] = {x[0], x[4], x[1], x[5], x[2], x[6], x[3], x[7]};
  for (int k = 0; k < 8; ++k) x[k] = y[k];
}

/// Outputs j and radix - j have the same sums, once with one sign and once with the other.
template <class V, class T>
GPUPOOL_FFT_INLINE void combine_odd(Complex<V>* x, std::size_t radix, const T* roots) {
  const std::size_t half = radix / 2;
  Complex<V> first = x[0], sums[max_radix / 2 + 1], differences[max_radix / 2 + 1];
  for (std::size_t k = 1; k <= half; ++k) {
    sums[k] = {x[k].re + x[radix - k].re, x[k].im + x[radix - k].im};
    differences[k] = {x[k].re - x[radix - k].re, x[k].im - x[radix - k].im};
  }
  for (std::size_t k = 1; k <= half; ++k) {
    x[0].re += sums[k].re;
    x[0].im += sums[k].im;
  }
  for (std::size_t j = 1; j <= half; ++j) {
    Complex<V> even = first, odd{V{}, V{}};
    std::size_t index = 0;
    for (std::size_t k = 1; k <= half; ++k) {
      index += j;
      if (index >= radix) index -= radix;
      const T cosine = roots[2 * index], sine = roots[2 * index + 1];
      even.re += sums[k].re * cosine;
      even.im += sums[k].im * cosine;
      odd.re += differences[k].im * sine;
      odd.im += differences[k].re * sine;
    }
    x[j] = {even.re - odd.re, even.im + odd.im};
    x[radix - j] = {even.re + odd.re, even.im - odd.im};
  }
}

/// Radix 0: that of the stage.
template <class T, std::size_t fixed_radix, bool twiddled>
GPUPOOL_FFT_INLINE void do_group(const Stage& stage, std::size_t p, const T* table,
                                 const Numbers<T>& numbers) {
  using V = typename Vector<T>::type;
  const std::size_t radix = fixed_radix == 0 ? stage.radix : fixed_radix;
  const auto *from_re = reinterpret_cast<const V*>(numbers.re) + stage.stride * p,
             *from_im = reinterpret_cast<const V*>(numbers.im) + stage.stride * p;
  auto *to_re = reinterpret_cast<V*>(numbers.other_re) + stage.stride * radix * p,
       *to_im = reinterpret_cast<V*>(numbers.other_im) + stage.stride * radix * p;
  const std::size_t apart = stage.groups * stage.stride;
  const T* const factors = table + stage.twiddles + 2 * (radix - 1) * p;
  for (std::size_t q = 0; q < stage.stride; ++q) {
    Complex<V> x[fixed_radix == 0 ? max_radix : fixed_radix];
    x[0] = {from_re[q], from_im[q]};
    for (std::size_t k = 1; k < radix; ++k) x[k] = {from_re[q + apart * k], from_im[q + apart * k]};
    if constexpr (fixed_radix == 2) {
      add_and_subtract(x[0], x[1]);
    } else if constexpr (fixed_radix == 4) {
      combine_4(x[0], x[1], x[2], x[3]);
    } else if constexpr (fixed_radix == 8) {
      combine_8<V, T>(x);
    } else {
      combine_odd(x, radix, table + stage.roots);
    }
    to_re[q] = x[0].re;
    to_im[q] = x[0].im;
    for (std::size_t j = 1; j < radix; ++j) {
      if constexpr (twiddled) {
        const T cosine = factors[2 * (j - 1)], sine = factors[2 * (j - 1) + 1];
        to_re[q + stage.stride * j] = x[j].re * cosine - x[j].im * sine;
        to_im[q + stage.stride * j] = x[j].re * sine + x[j].im * cosine;
      } else {
        to_re[q + stage.stride * j] = x[j].re;
        to_im[q + stage.stride * j] = x[j].im;
      }
    }
  }
}

template <class T, std::size_t fixed_radix>
GPUPOOL_FFT_INLINE void do_stage(const Stage& stage, const T* table, const Numbers<T>& numbers) {
  do_group<T, fixed_radix, false>(stage, 0, table, numbers);
  for (std::size_t p = 1; p < stage.groups; ++p) do_group<T, fixed_radix, true>(stage, p, table, numbers);
}

template <class T>
GPUPOOL_FFT_INLINE void do_transform(const Stage* stages, std::size_t count, const T* table,
                                     Numbers<T>& numbers) {
  for (std::size_t index = 0; index < count; ++index) {
    const Stage& stage = stages[index];
    switch (stage.radix) {
      case 2:
        do_stage<T, 2>(stage, table, numbers);
        break;
      case 3:
        do_stage<T, 3>(stage, table, numbers);
        break;
      case 4:
        do_stage<T, 4>(stage, table, numbers);
        break;
      case 5:
        do_stage<T, 5>(stage, table, numbers);
        break;
      case 7:
        do_stage<T, 7>(stage, table, numbers);
        break;
      case 8:
        do_stage<T, 8>(stage, table, numbers);
        break;
      default:
        do_stage<T, 0>(stage, table, numbers);
    }
    numbers.take_other();
  }
}

template <class T>
GPUPOOL_FFT_INLINE void do_multiply(const Factors<T>& factors, std::uint64_t line, std::size_t length, T* re,
                                    T* im) {
  using V = typename Vector<T>::type;
  auto *const all_re = reinterpret_cast<V*>(re), *const all_im = reinterpret_cast<V*>(im);
  const auto* const of_lanes = reinterpret_cast<const V*>(factors.of_lanes);
  line %= factors.n;
  std::uint64_t index = 0;  // line · k mod n
  for (std::size_t k = 0; k < length; ++k) {
    const T *const coarse = factors.coarse_roots + 2 * (index / factors.fine), *const fine =
                                                                                   factors.fine_roots +
                                                                                   2 * (index &
                                                                                        (factors.fine - 1));
    const T shared_re = coarse[0] * fine[0] - coarse[1] * fine[1],
            shared_im = coarse[0] * fine[1] + coarse[1] * fine[0];
    const V lane_re = of_lanes[2 * k], lane_im = of_lanes[2 * k + 1];
    const V by_re = lane_re * shared_re - lane_im * shared_im,
            by_im = lane_re * shared_im + lane_im * shared_re;
    const V old = all_re[k];
    all_re[k] = old * by_re - all_im[k] * by_im;
    all_im[k] = old * by_im + all_im[k] * by_re;
    index += line;
    if (index >= factors.n) index -= factors.n;
  }
}

using Floats = Vector<float>::type;
using Doubles = Vector<double>::type;

template <class V>
GPUPOOL_FFT_INLINE void load(V& into, const void* from) {
  __builtin_memcpy(&into, from, sizeof into);
}
template <class V>
GPUPOOL_FFT_INLINE void store(void* to, const V& value) {
  __builtin_memcpy(to, &value, sizeof value);
}

/// As a matrix whose rows are the vectors.
GPUPOOL_FFT_INLINE void transpose(Floats* x) {
  Floats y[8], z[8];
  for (int i = 0; i < 8; i += 2) {
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      z[i + 2 * j] = __builtin_shufflevector(y[i + j], y[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      z[i + 2 * j + 1] = __builtin_shufflevector(y[i + j], y[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    x[i] = __builtin_shufflevector(z[i], z[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    x[i + 4] = __builtin_shufflevector(z[i], z[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
GPUPOOL_FFT_INLINE void transpose(Doubles* x) {
  Doubles y[4];
  for (int i = 0; i < 4; i += 2) {
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 4, 2, 6);
    y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 1, 5, 3, 7);
  }
  for (int i = 0; i < 2; ++i) {
    x[i] = __builtin_shufflevector(y[i], y[i + 2], 0, 1, 4, 5);
    x[i + 2] = __builtin_shufflevector(y[i], y[i + 2], 2, 3, 6, 7);
  }
}

GPUPOOL_FFT_INLINE void part(const Floats& a, const Floats& b, Floats& re, Floats& im) {
  re = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  im = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}
GPUPOOL_FFT_INLINE void part(const Doubles& a, const Doubles& b, Doubles& re, Doubles& im) {
  re = __builtin_shufflevector(a, b, 0, 2, 4, 6);
  im = __builtin_shufflevector(a, b, 1, 3, 5, 7);
}
GPUPOOL_FFT_INLINE void join(const Floats& re, const Floats& im, Floats& a, Floats& b) {
  a = __builtin_shufflevector(re, im, 0, 8, 1, 9, 2, 10, 3, 11);
  b = __builtin_shufflevector(re, im, 4, 12, 5, 13, 6, 14, 7, 15);
}
GPUPOOL_FFT_INLINE void join(const Doubles& re, const Doubles& im, Doubles& a, Doubles& b) {
  a = __builtin_shufflevector(re, im, 0, 4, 1, 5);
  b = __builtin_shufflevector(re, im, 2, 6, 3, 7);
}

template <class T>
GPUPOOL_FFT_INLINE void do_read(const T* from, Rows rows, std::size_t length, T* re, T* im) {
  using V = typename Vector<T>::type;
  constexpr std::size_t width = lanes<T>, together = width / 2;
  std::size_t k = 0;
  for (; k + together <= length; k += together) {
    V x[width];
    for (std::size_t i = 0; i < width; ++i)
      load(x[i], from + 2 * k + rows.apart * static_cast<std::ptrdiff_t>(i));
    transpose(x);
    for (std::size_t j = 0; j < together; ++j) {
      store(re + (k + j) * width, x[2 * j]);
      store(im + (k + j) * width, x[2 * j + 1]);
    }
  }
  for (; k < length; ++k) {
    for (std::size_t i = 0; i < width; ++i) {
      re[k * width + i] = from[2 * k + rows.apart * static_cast<std::ptrdiff_t>(i)];
      im[k * width + i] = from[2 * k + rows.apart * static_cast<std::ptrdiff_t>(i) + 1];
    }
  }
}
template <class T>
GPUPOOL_FFT_INLINE void do_write(T* to, Rows rows, std::size_t length, const T* re, const T* im) {
  using V = typename Vector<T>::type;
  constexpr std::size_t width = lanes<T>, together = width / 2;
  std::size_t k = 0;
  for (; k + together <= length; k += together) {
    V x[width];
    for (std::size_t j = 0; j < together; ++j) {
      load(x[2 * j], re + (k + j) * width);
      load(x[2 * j + 1], im + (k + j) * width);
    }
    transpose(x);
    for (std::size_t i = 0; i < width; ++i)
      store(to + 2 * k + rows.apart * static_cast<std::ptrdiff_t>(i), x[i]);
  }
  for (; k < length; ++k) {
    for (std::size_t i = 0; i < width; ++i) {
      to[2 * k + rows.apart * static_cast<std::ptrdiff_t>(i)] = re[k * width + i];
      to[2 * k + rows.apart * static_cast<std::ptrdiff_t>(i) + 1] = im[k * width + i];
    }
  }
}
template <class T>
GPUPOOL_FFT_INLINE void do_read(const T* from, Columns columns, std::size_t length, T* re, T* im) {
  using V = typename Vector<T>::type;
  constexpr std::size_t width = lanes<T>;
  for (std::size_t k = 0; k < length; ++k) {
    const T* const row = from + columns.apart * static_cast<std::ptrdiff_t>(k);
    V a, b, all_re, all_im;
    load(a, row);
    load(b, row + width);
    part(a, b, all_re, all_im);
    store(re + k * width, all_re);
    store(im + k * width, all_im);
  }
}
template <class T>
GPUPOOL_FFT_INLINE void do_write(T* to, Columns columns, std::size_t length, const T* re, const T* im) {
  using V = typename Vector<T>::type;
  constexpr std::size_t width = lanes<T>;
  for (std::size_t k = 0; k < length; ++k) {
    T* const row = to + columns.apart * static_cast<std::ptrdiff_t>(k);
    V a, b, all_re, all_im;
    load(all_re, re + k * width);
    load(all_im, im + k * width);
    join(all_re, all_im, a, b);
    store(row, a);
    store(row + width, b);
  }
}
template <class T>
GPUPOOL_FFT_INLINE void do_turn(const T* from, std::size_t apart, std::size_t length, T* to) {
  using V = typename Vector<T>::type;
  constexpr std::size_t width = lanes<T>;
  std::size_t k = 0;
  for (; k + width <= length; k += width) {
    V x[width];
    for (std::size_t i = 0; i < width; ++i) load(x[i], from + k + apart * i);
    transpose(x);
    for (std::size_t i = 0; i < width; ++i) store(to + (k + i) * width, x[i]);
  }
  for (; k < length; ++k) {
    for (std::size_t i = 0; i < width; ++i) to[k * width + i] = from[k + apart * i];
  }
}

// Each for every instruction set that makes a difference, and for both precisions.
#if defined(__x86_64__)
const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
#define GPUPOOL_FFT_FUNCTION(name, T, parameters, ...)                      \
  __attribute__((target("avx2"))) void name##_avx2 parameters {             \
    do_##name(__VA_ARGS__);                                                 \
  }                                                                         \
  void name##_plain parameters {                                            \
    do_##name(__VA_ARGS__);                                                 \
  }                                                                         \
  }                                                                         \
  void name parameters {                                                    \
    return has_avx2 ? name##_avx2(__VA_ARGS__) : name##_plain(__VA_ARGS__); \
  }                                                                         \
  namespace {
#else
#define GPUPOOL_FFT_FUNCTION(name, T, parameters, ...) \
  }                                                    \
  void name parameters {                               \
    do_##name(__VA_ARGS__);                            \
  }                                                    \
  namespace {
#endif
#define GPUPOOL_FFT_BOTH(T)                                                                                 \
  GPUPOOL_FFT_FUNCTION(transform, T,                                                                        \
                       (const Stage* stages, std::size_t count, const T* table, Numbers<T>& numbers),       \
                       stages, count, table, numbers)                                                       \
  GPUPOOL_FFT_FUNCTION(multiply, T,                                                                         \
                       (const Factors<T>& factors, std::uint64_t line, std::size_t length, T* re, T* im),   \
                       factors, line, length, re, im)                                                       \
  GPUPOOL_FFT_FUNCTION(read, T, (const T* from, Rows rows, std::size_t length, T* re, T* im), from, rows,   \
                       length, re, im)                                                                      \
  GPUPOOL_FFT_FUNCTION(read, T, (const T* from, Columns columns, std::size_t length, T* re, T* im), from,   \
                       columns, length, re, im)                                                             \
  GPUPOOL_FFT_FUNCTION(write, T, (T * to, Rows rows, std::size_t length, const T* re, const T* im), to,     \
                       rows, length, re, im)                                                                \
  GPUPOOL_FFT_FUNCTION(write, T, (T * to, Columns columns, std::size_t length, const T* re, const T* im),   \
                       to, columns, length, re, im)                                                         \
  GPUPOOL_FFT_FUNCTION(turn, T, (const T* from, std::size_t apart, std::size_t length, T* to), from, apart, \
                       length, to)

GPUPOOL_FFT_BOTH(float)
GPUPOOL_FFT_BOTH(double)

}  // namespace
}  // namespace softgpu::libraries::fft
