// Node parameters of graphs turned into operations, and the execution of an instantiated graph.
#pragma once

#include <memory>

#include "softgpu/driver/cuda_api.h"
#include "softgpu/driver/graph.h"
#include "softgpu/driver/operation.h"

namespace softgpu::driver {

class Stream;

// All throw Error(INVALID_VALUE) for null or wrong parameters.
Operation kernel_node(const CUDA_KERNEL_NODE_PARAMS* parameters);
Operation host_node(const CUDA_HOST_NODE_PARAMS* parameters);
Operation child_node(const std::shared_ptr<Graph>& child);

// Puts one execution of all steps into the stream, as one piece of work.
void launch_graph(const std::shared_ptr<Stream>& stream, const GraphExec& exec);

}  // namespace softgpu::driver
