// Operands that find mistakes: edges, their neighbours, and anything.
#pragma once

#include "softgpu/differential/random.h"
#include "softgpu/reference/exact_float.h"

namespace softgpu::differential {

[[nodiscard]] inline uint64_t interesting_integer(Random& random, int bits) {
  const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const uint64_t top = uint64_t{1} << (bits - 1);
  switch (random.below(8)) {
    case 0:
      return random.below(5);
    case 1:
      return (uint64_t{0} - random.below(5)) & mask;
    case 2:
      return (top + random.below(5) - 2) & mask;
    case 3:
      return (uint64_t{1} << random.below(static_cast<uint64_t>(bits))) & mask;
    case 4:
      return random.below(80);
    case 5:
      return ((uint64_t{1} << random.below(static_cast<uint64_t>(bits))) - 1) & mask;
    default:
      return random.next() & mask;
  }
}

[[nodiscard]] inline uint64_t interesting_float(Random& random, const reference::FloatFormat& format) {
  const int fraction = format.fraction_bits, exponent = format.exponent_bits;
  const uint64_t sign = random.below(2) << (fraction + exponent);
  const uint64_t all = (uint64_t{1} << fraction) - 1, bias = (uint64_t{1} << (exponent - 1)) - 1;
  const auto made = [&](uint64_t field, uint64_t low) { return sign | field << fraction | (low & all); };
  switch (random.below(16)) {
    case 0:
      return sign;  // zero
    case 1:
      return made(0, random.one_of<uint64_t>({1, 2, all, all - 1, random.next()}));  // subnormal
    case 2:
      return made(1, random.one_of<uint64_t>({0, 1, random.next()}));  // the smallest normal
    case 3:
      return made(2 * bias, random.one_of<uint64_t>({all, all - 1, 0, random.next()}));  // the largest
    case 4:
      return made(2 * bias + 1, 0);  // infinity
    case 5:
      return made(2 * bias + 1, random.next() | 1);  // NaN
    case 6:
      return made(bias, random.one_of<uint64_t>({0, 1, all, uint64_t{1} << (fraction - 1)}));  // about 1
    case 7:
      return made(bias - 1, random.one_of<uint64_t>({0, 1, all}));  // about 1/2
    case 8:
    case 9: {  // integers and halves, ties of rounding to integers among them
      const uint64_t places = random.below(static_cast<uint64_t>(fraction) + 1);
      const uint64_t keep = all ^ ((uint64_t{1} << (static_cast<uint64_t>(fraction) - places)) - 1);
      const uint64_t field = bias + (places == 0 ? 0 : places - random.below(2));
      return made(field > 2 * bias ? 2 * bias : field, random.next() & keep);
    }
    case 10: {  // about the limits of integer types
      const uint64_t field = bias + random.one_of<uint64_t>({7, 8, 14, 15, 16, 30, 31, 32, 62, 63, 64});
      return made(field > 2 * bias ? 2 * bias : field, random.one_of<uint64_t>({0, 1, all, all - 1}));
    }
    case 11:
    case 12:
    case 13: {  // of moderate size, so that sums and products mean something
      const uint64_t field = bias + random.below(12) - 6;
      return made(field > 2 * bias ? bias : field, random.next());
    }
    default:
      return (random.next() & ((uint64_t{1} << (fraction + exponent)) - 1)) | sign;
  }
}

}  // namespace softgpu::differential
