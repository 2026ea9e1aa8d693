// Parameters of graph nodes on their way to the worker.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpupool::client {

// Of a node of `graph`.
/// What cannot be sent is refused with a reason.
CUresult prepare_params(std::uint64_t graph, CUgraphNodeParams& params);
/// As shared_api/node_codec.h writes them. Refused where they name something of another node than the
/// graph's.
CUresult encode_params(std::uint64_t graph, const CUgraphNodeParams& params,
                       const std::vector<std::uint64_t>& bodies, std::vector<std::byte>& out);

}  // namespace gpupool::client
