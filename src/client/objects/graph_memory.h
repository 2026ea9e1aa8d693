// Memory that allocation nodes of graphs give out: the driver chose its addresses, and it is not the arena's.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace gpupool::client {

/// An allocation node was made, of a graph or by a capture, on a worker whose first device this is.
void remember_graph_memory(CUdeviceptr address, std::size_t size, int device);
/// Whether an allocation node gave out the address. Costs a comparison where it lies in an arena.
bool is_graph_memory(CUdeviceptr address);

/// Stream-ordered memory in a capture: a node's. Precondition: the stream is capturing.
CUresult allocate_in_capture(CUdeviceptr* out, std::size_t size, CUstream stream);
/// Frees memory that an allocation node gave out: in stream order, or by a node where the stream is
/// capturing.
CUresult free_graph_memory(CUdeviceptr address, CUstream stream);

}  // namespace gpupool::client
