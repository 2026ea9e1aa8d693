// A launch configuration with attributes, in the form in which it travels.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <span>

#include "protocol/launch_attributes.h"

namespace gpupool::client {

/// The attributes of a configuration: {i32 id, 64 bytes of value}*. `function` names the caller in the log.
/// CUDA_ERROR_INVALID_VALUE, or CUDA_ERROR_NOT_SUPPORTED for one that means nothing to the worker.
class EncodedAttributes {
 public:
  CUresult encode(const CUlaunchConfig* config, const char* function);
  [[nodiscard]] std::span<const std::byte> bytes() const { return {bytes_.data(), size_}; }
  [[nodiscard]] bool cooperative() const { return cooperative_; }

 private:
  std::array<std::byte, max_launch_attributes * (4 + sizeof(CUlaunchAttributeValue))> bytes_;
  std::size_t size_ = 0;
  bool cooperative_ = false;
};

/// Fills grid, block and shared memory of a message.
template <class M>
void describe_launch(M& m, const CUlaunchConfig& config) {
  m.grid_x = config.gridDimX;
  m.grid_y = config.gridDimY;
  m.grid_z = config.gridDimZ;
  m.block_x = config.blockDimX;
  m.block_y = config.blockDimY;
  m.block_z = config.blockDimZ;
  m.shared_bytes = config.sharedMemBytes;
}

}  // namespace gpupool::client
