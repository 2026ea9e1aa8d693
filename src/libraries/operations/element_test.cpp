// The 16-bit formats, number by number.
#include "libraries/operations/element.h"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <limits>

using namespace gpupool::operations;

TEST_CASE(
    "every f16 becomes a float and itself again, and what lies between two goes to the nearest, or to the "
    "even one") {
  unsigned wrong = 0;
  for (const unsigned sign : {0u, 0x8000u}) {
    for (unsigned n = 0; n < 0x7bff; ++n) {
      const auto half = static_cast<std::uint16_t>(sign | n), next = static_cast<std::uint16_t>(half + 1);
      const float here = of_float16(half), there = of_float16(next);
      const float middle = (here + there) / 2;
      wrong += float16_of(here) != half;
      wrong += float16_of(middle) != (half % 2 == 0 ? half : next);
      wrong += float16_of(std::nextafter(middle, here)) != half;
      wrong += float16_of(std::nextafter(middle, there)) != next;
    }
  }
  CHECK(wrong == 0);
  CHECK(of_float16(0x3c00) == 1);
  CHECK(of_float16(0x0001) == std::ldexp(1.0F, -24));
  CHECK(float16_of(65519.99F) == 0x7bff);
  CHECK(float16_of(65520) == 0x7c00);
  CHECK(float16_of(-std::numeric_limits<float>::infinity()) == 0xfc00);
  CHECK(std::isinf(of_float16(0x7c00)));
  CHECK(std::isnan(of_float16(float16_of(std::nanf("")))));
}
