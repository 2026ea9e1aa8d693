// A call's arguments as operations have them.
#pragma once

#include <cstdint>

#include "libraries/operations/element.h"
#include "libraries/operations/scalar.h"

namespace gpupool::libraries {

inline std::uint64_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// A factor as the call was given it: its bytes, or its address where factors are in device memory.
inline operations::Factor factor(bool on_device, const void* value, operations::Element type) {
  operations::Factor made;
  made.type = type;
  made.on_device = on_device;
  if (on_device) {
    made.value.words[0] = address(value);
  } else {
    __builtin_memcpy(made.value.words, value, operations::bytes_of(type));
  }
  return made;
}

}  // namespace gpupool::libraries
