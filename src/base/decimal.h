// Numbers as programs read them.
#pragma once

#include <charconv>
#include <string>

namespace gpupool {

/// With a point, whatever the program's locale is: `printf` and `std::to_string` write a comma in many.
inline std::string decimal(double value, int digits) {
  char text[340];  // the largest double has 309 digits before the point
  const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, digits);
  return {text, end.ptr};
}

}  // namespace gpupool
