// What other families need to know about stream capture.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace gpupool::client {

/// Costs nothing while no capture is open, else a round trip.
CUresult is_capturing(CUstream stream, bool& out);

/// Stream-ordered memory in a capture: the graph's, at an address that the driver chooses.
CUresult allocate_in_capture(CUdeviceptr* out, std::size_t size, CUstream stream);
/// Frees memory that an allocation node gave out, in stream order or by a node.
CUresult free_graph_memory(CUdeviceptr address, CUstream stream);

}  // namespace gpupool::client
