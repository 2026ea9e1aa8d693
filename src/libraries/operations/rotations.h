// Givens rotations: made by the program where its numbers are in host memory, else by the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>

namespace gpupool::operations {

/// c and s so that (c s; -s c) · (a, b) = (r, 0); a becomes r, b what c and s can be made of again.
template <class T>
void make_rotation(T& a, T& b, T& c, T& s) {
  const T size_a = std::abs(a), size_b = std::abs(b), scale = size_a + size_b;
  if (scale == 0) {
    c = 1;
    s = a = b = 0;
    return;
  }
  const T r = std::copysign(scale * std::hypot(a / scale, b / scale), size_a > size_b ? a : b);
  c = a / r;
  s = b / r;
  b = size_a > size_b ? s : c != 0 ? 1 / c : T(1);
  a = r;
}

/// The same of complex numbers: (c s; -conj(s) c); b stays as it is.
template <class T>
void make_rotation(std::complex<T>& a, std::complex<T>& b, T& c, std::complex<T>& s) {
  const T size_a = std::abs(a);
  if (size_a == 0) {
    c = 0;
    s = 1;
    a = b;
    return;
  }
  const T length = std::hypot(size_a, std::abs(b));
  const std::complex<T> direction = a / size_a;
  c = size_a / length;
  s = direction * std::conj(b) / length;
  a = direction * length;
}

/// The modified rotation H, which makes the second of (x1 · √d1, y1 · √d2) zero without roots. `parameters`
/// are its kind (-2: the identity, -1: all four are there, 0: ones on the diagonal, 1: one and minus one
/// beside it), and h11, h21, h12, h22; those that the kind says are not written.
template <class T>
void make_modified(T& d1, T& d2, T& x1, T y1, T* parameters) {
  T kind = -1, h11 = 0, h21 = 0, h12 = 0, h22 = 0;
  const T step = 4096, step2 = step * step;
  const auto nothing = [&] { d1 = d2 = x1 = 0; };
  // A kind that leaves numbers out has them; then all are wanted.
  const auto all_there = [&] {
    if (kind == 0) h11 = h22 = 1;
    if (kind == 1) h21 = -1, h12 = 1;
    kind = -1;
  };
  if (d1 < 0) {
    nothing();
  } else {
    const T p2 = d2 * y1;
    if (p2 == 0) {
      parameters[0] = -2;
      return;
    }
    const T p1 = d1 * x1, q2 = p2 * y1, q1 = p1 * x1;
    if (std::abs(q1) > std::abs(q2)) {
      h21 = -y1 / x1;
      h12 = p2 / p1;
      const T u = 1 - h12 * h21;
      if (u > 0) {
        kind = 0;
        d1 /= u;
        d2 /= u;
        x1 *= u;
      } else {
        h21 = h12 = 0;
        nothing();
      }
    } else if (q2 < 0) {
      nothing();
    } else {
      kind = 1;
      h11 = p1 / p2;
      h22 = x1 / y1;
      const T u = 1 + h11 * h22;
      const T old = d2 / u;
      d2 = d1 / u;
      d1 = old;
      x1 = y1 * u;
    }
    // d1 and d2 stay where their numbers are exact enough.
    const auto out_of_range = [&](T d) {
      return d != 0 && std::isfinite(d) && (std::abs(d) <= 1 / step2 || std::abs(d) >= step2);
    };
    while (out_of_range(d1)) {
      all_there();
      const bool small = std::abs(d1) <= 1 / step2;
      d1 *= small ? step2 : 1 / step2;
      for (T* const each : {&x1, &h11, &h12}) *each *= small ? 1 / step : step;
    }
    while (out_of_range(d2)) {
      all_there();
      const bool small = std::abs(d2) <= 1 / step2;
      d2 *= small ? step2 : 1 / step2;
      for (T* const each : {&h21, &h22}) *each *= small ? 1 / step : step;
    }
  }
  parameters[0] = kind;
  if (kind != 0) parameters[1] = h11, parameters[4] = h22;
  if (kind != 1) parameters[2] = h21, parameters[3] = h12;
}

}  // namespace gpupool::operations
