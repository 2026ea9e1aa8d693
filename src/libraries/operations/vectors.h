// Level 1 of BLAS: what is done with one or two vectors.
#pragma once

#include <cstdint>

#include "libraries/operations/scalar.h"

namespace gpupool::operations {

/// A negative increment begins at the other end, as in BLAS.
struct Vector {
  std::uint64_t address = 0;
  std::int64_t increment = 1;
  Element type = Element::f32;
  std::uint8_t reserved[7] = {};
};

enum class OnVectors : std::uint8_t {
  copy = 0,      // y = x
  swap = 1,      // x, y = y, x
  scale = 2,     // x = alpha · x
  add = 3,       // y = alpha · x + y
  rotate = 4,    // x, y = alpha · x + beta · y, alpha · y - conj(beta) · x
  modified = 5,  // x, y = H · (x, y), H as `parameters` say
  // These write one number at places[0].
  dot = 6,
  conjugated_dot = 7,  // x is conjugated
  norm = 8,
  sum = 9,       // of sizes: |real| + |imaginary|
  largest = 10,  // its index, from 1 on
  smallest = 11,
  // These make a rotation of numbers in device memory: rotg of places a, b, c, s; rotmg of d1, d2, x1, y1,
  // parameters.
  make_rotation = 12,
  make_modified = 13,
};

struct Vectors {
  static constexpr const char* name = "cublas_vectors";
  static constexpr std::int64_t piece = 1 << 17;  // elements of a part
  Vector x, y;
  std::int64_t n = 0;
  Factor alpha, beta;
  std::uint64_t places[5] = {};
  double parameters[5] = {};  // of a modified rotation; or alpha is the address of five numbers
  OnVectors what = OnVectors::copy;
  Element result = Element::f32;  // at places[0]
  Element compute = Element::f32;
  Flag wide = false;  // an index has 64 bits
  std::uint8_t reserved[4] = {};

  /// Results of a whole vector are made in one order; so is what happens to one element again and again.
  [[nodiscard]] std::uint64_t parts() const {
    const bool whole = what >= OnVectors::dot || x.increment == 0 || y.increment == 0;
    return whole || n <= 0 ? 1 : static_cast<std::uint64_t>((n - 1) / piece + 1);
  }
};

}  // namespace gpupool::operations
