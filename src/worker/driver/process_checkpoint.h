// The driver's process checkpoint, on the worker's own process.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

namespace gpupool::worker {

/// What memory_mover.h asks of the driver. Results as in cuda.h.
class ProcessCheckpoint {
 public:
  virtual ~ProcessCheckpoint() = default;

  /// Makes all calls of the process wait, once the device has done what it was given. CUDA_ERROR_NOT_READY
  /// after `timeout_ms`: everything is as before.
  virtual CUresult lock(unsigned timeout_ms) = 0;
  /// The contents of the devices' memory go to the host, and everything else of the process leaves them too.
  virtual CUresult save() = 0;
  /// `pairs`: from each device of the process to the one that takes its place; empty: the same ones.
  virtual CUresult restore(std::vector<CUcheckpointGpuPair> pairs) = 0;
  virtual CUresult unlock() = 0;
  virtual CUresult state(CUprocessState& out) = 0;
};

/// The driver must have been initialised. Null when the driver has no such calls, or says that they do not
/// work here.
std::unique_ptr<ProcessCheckpoint> open_process_checkpoint(void* driver_library);

}  // namespace gpupool::worker
