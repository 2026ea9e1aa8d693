// Parameters of graph nodes: from cuda.h's description to an operation, and back.
#pragma once

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/graph/graph.h"
#include "softgpu/driver/graph/operation.h"

namespace softgpu::driver {

// Fills in what the caller is given back (an address, the bodies of a conditional). Throws
// Error(INVALID_VALUE) for null or wrong parameters. `before`: of the node that gets these. They don't say
// whether a kernel is cooperative, so it stays what it was.
Operation make_operation(CUgraphNodeParams& parameters, const NodeParameters& before = {});

// Pointers in `out` point to what the node owns.
void describe_node(const GraphNode& node, CUgraphNodeParams& out);

// The context the node is to run in: the one named, else the current one.
CUcontext context_of(const CUgraphNodeParams& parameters);

// Of a kernel node. Throw Error(INVALID_VALUE), Error(NOT_SUPPORTED).
void set_kernel_attribute(GraphNode& node, CUlaunchAttributeID id, const CUlaunchAttributeValue& value);
CUlaunchAttributeValue kernel_attribute(const GraphNode& node, CUlaunchAttributeID id);

// In a capturing stream: an allocation node, and the address it will have.
CUdeviceptr capture_allocation(const std::shared_ptr<Stream>& stream, const Device& device, std::size_t size);
// Frees what an allocation node gave out, in a capturing stream by a node. False for any other address.
bool free_graph_allocation(const std::shared_ptr<Stream>& stream, CUdeviceptr address);

}  // namespace softgpu::driver
