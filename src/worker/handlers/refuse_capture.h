// Copies that pass through the worker's memory cannot be part of a graph.
#pragma once

#include <cuda.h>

namespace gpupool::worker {

class Call;

/// CUDA_SUCCESS when `stream` is not being captured. Else the capture is invalid afterwards, which is CUDA's
/// answer to what cannot be captured: the bytes would be read or written whenever the graph runs, and the
/// worker holds them only now.
CUresult refuse_capture(Call& x, CUstream stream);

}  // namespace gpupool::worker
