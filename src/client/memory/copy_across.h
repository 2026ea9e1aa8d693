// Copies between devices of different nodes: their bytes go through this process.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "client/memory/copy.h"

namespace gpupool::client {

/// Whether both are device memory, and not of one node.
bool are_on_two_nodes(std::uint64_t to, std::uint64_t from);

/// Where `stream` is of another node than the memory, no node can order the copy in it: the stream is waited
/// for, and the copy is one of the memory's own node that is waited for too. `stream` becomes the default
/// one.
CUresult leave_stream_of_other_node(std::uint64_t address, CUstream& stream, bool& asynchronous);

// The caller waits for what `stream` was given, and for the copy: it is in place when they return.
CUresult copy_across(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream);
CUresult copy_rows_across(const Block& to, const Block& from, const Extent& extent, CUstream stream);

}  // namespace gpupool::client
