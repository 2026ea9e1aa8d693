// Launch attributes from the wire.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <vector>

namespace gpupool::worker {

class Call;

/// Attributes as the driver wants them, with the client's event handles replaced by the driver's.
CUresult read_launch_attributes(Call& x, std::span<const std::byte> bytes,
                                std::vector<CUlaunchAttribute>& out);

/// A configuration of a message with grid, block and shared memory. `attributes` must outlive it.
template <class M>
CUlaunchConfig launch_config(const M& m, CUstream stream, std::vector<CUlaunchAttribute>& attributes) {
  CUlaunchConfig config{};
  config.gridDimX = m.grid_x;
  config.gridDimY = m.grid_y;
  config.gridDimZ = m.grid_z;
  config.blockDimX = m.block_x;
  config.blockDimY = m.block_y;
  config.blockDimZ = m.block_z;
  config.sharedMemBytes = m.shared_bytes;
  config.hStream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  return config;
}

}  // namespace gpupool::worker
