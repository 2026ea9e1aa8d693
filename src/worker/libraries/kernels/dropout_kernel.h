// Dropout on a GPU: the numbers, the mask and the states of our cuDNN's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "libraries/operations/dropout.h"
#include "libraries/operations/element.h"

namespace gpupool::worker {

/// Where the mask comes from. The kernel knows these numbers.
enum class Masking : std::uint32_t {
  read = 0,   // it lies there
  whole = 1,  // everything is kept, and the mask says so
  drawn = 2,  // random numbers decide, and the mask says how
};

/// The parameter of the kernels `dropout_f32`, `…_f64`, `…_f16` and `…_bf16`. A thread has eight elements,
/// which are a byte of the mask.
struct DropoutLaunch {
  static constexpr int max_dims = operations::max_dims;

  std::uint64_t from = 0, into = 0, mask = 0;
  std::uint64_t states = 0;    // that are read; what moves them on is a kernel of its own
  std::uint64_t first = 0;     // the number of the first element among those of the operation
  std::uint64_t count = 0;     // of elements
  std::uint64_t left_out = 0;  // a word of 32 bits below it leaves its element out
  double kept = 1;             // what is kept is divided by it
  std::uint32_t dims = 1;      // at least 1
  Masking masking = Masking::read;
  std::int64_t sizes[max_dims] = {}, from_strides[max_dims] = {}, into_strides[max_dims] = {};

  [[nodiscard]] std::uint64_t threads() const { return (count + 7) / 8; }
};

/// The parameter of `dropout_states`, which has one thread.
struct DropoutStatesLaunch {
  std::uint64_t states = 0;
  std::uint64_t seed = 0;   // of new states
  std::uint64_t drawn = 0;  // by how many numbers the states move on; 0: they are made new
};

/// The PTX that has these kernels.
const std::string& dropout_text();

/// The kernel for elements of a type; null where there is none.
const char* dropout_kernel(operations::Element type);

}  // namespace gpupool::worker
