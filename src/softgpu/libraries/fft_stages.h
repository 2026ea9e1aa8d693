// The steps of a fast Fourier transform of several lines at once: element i of all lines lies in one vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace softgpu::libraries::fft {

/// So many lines are computed together: as many complex numbers as a cache line holds.
template <class T>
inline constexpr std::size_t lanes = 32 / sizeof(T);

/// One step, of Stockham's kind: numbers that lie `groups · stride` apart are combined, `radix` at a time,
/// and land where the next step reads them, so nothing is left to be sorted.
struct Stage {
  std::size_t radix, groups, stride;
  std::size_t twiddles;  // where its factors begin in the table: (radix - 1) pairs for each group
  std::size_t roots;     // of an odd radix: where e^(-2πi j / radix) begin
};

inline constexpr std::size_t max_radix = 31;

/// Numbers of all lines, and room for as many. Real and imaginary parts lie apart.
template <class T>
struct Numbers {
  T *re, *im, *other_re, *other_im;

  void take_other() {
    std::swap(re, other_re);
    std::swap(im, other_im);
  }
  /// A transform with the other sign is one of numbers whose parts have changed places.
  void exchange_parts() {
    std::swap(re, im);
    std::swap(other_re, other_im);
  }
};

/// All stages of the transform with the sign -1. Arrays are aligned to 32 bytes. `table`: pairs (cos, sin).
void transform(const Stage* stages, std::size_t count, const float* table, Numbers<float>& numbers);
void transform(const Stage* stages, std::size_t count, const double* table, Numbers<double>& numbers);

/// Factors e^(-2πi · line · k / n) for all k of a length, of `lanes` lines that lie together: their product
/// is taken of one that the lines share, and one of each.
template <class T>
struct Factors {
  std::uint64_t n, fine;               // a power of two
  const T *coarse_roots, *fine_roots;  // pairs: of multiples of `fine`, and of what is below it
  const T* of_lanes;                   // for each k the cosines of the lanes, then the sines
};

/// Multiplies the numbers of the lines [line, line + lanes).
void multiply(const Factors<float>& factors, std::uint64_t line, std::size_t length, float* re, float* im);
void multiply(const Factors<double>& factors, std::uint64_t line, std::size_t length, double* re, double* im);

/// Complex numbers of `lanes` lines, from and to where real and imaginary parts alternate. Numbers lie one
/// after another in a line, and lines `apart` values apart; or, with columns, the other way round.
struct Rows {
  std::ptrdiff_t apart;
};
struct Columns {
  std::ptrdiff_t apart;
};
void read(const float* from, Rows rows, std::size_t length, float* re, float* im);
void read(const double* from, Rows rows, std::size_t length, double* re, double* im);
void read(const float* from, Columns columns, std::size_t length, float* re, float* im);
void read(const double* from, Columns columns, std::size_t length, double* re, double* im);
void write(float* to, Rows rows, std::size_t length, const float* re, const float* im);
void write(double* to, Rows rows, std::size_t length, const double* re, const double* im);
void write(float* to, Columns columns, std::size_t length, const float* re, const float* im);
void write(double* to, Columns columns, std::size_t length, const double* re, const double* im);
/// Values of `lanes` lines that lie `apart`: value k of each comes together.
void turn(const float* from, std::size_t apart, std::size_t length, float* to);
void turn(const double* from, std::size_t apart, std::size_t length, double* to);

}  // namespace softgpu::libraries::fft
