// Descriptors of recurrent networks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "libraries/cudnn/descriptors.h"
#include "libraries/operations/rnn.h"

namespace gpupool::cudnn {

struct RnnDescriptor : Marked<0x6e74000b> {
  bool set = false;
  int algorithm = 0, cell = 0, bias = 2, direction = 0, input_mode = 0, data_type = 0, precision = 0,
      math = 0;
  std::int32_t input = 0, hidden = 0, projection = 0, layers = 0;
  void* dropout = nullptr;  // what the program gave, and what it was then
  float rate = 0;
  void* states = nullptr;
  std::uint32_t flags = 0;
};

struct RnnDataDescriptor : Marked<0x6e74000c> {
  int data_type = 0, layout = 0, steps = 0, batch = 0, vector = 0;
  std::vector<int> lengths;
  std::optional<double> fill;
};

/// Without steps and sequences, where no data is given.
operations::RnnShape shape_of(const RnnDescriptor& network, const RnnDataDescriptor* data);

inline std::int64_t bytes_of_weights(const operations::RnnShape& shape) {
  return shape.weights() * static_cast<std::int64_t>(operations::bytes_of(shape.type));
}

}  // namespace gpupool::cudnn
