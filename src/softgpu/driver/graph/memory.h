// Memory that allocation nodes of graphs give out: an address for the graph's life, used from the launch that
// allocates it until it is freed.
//
// The memory behind the address is held from the making of the node until graph and executable graph are
// gone, so nothing has to be mapped in the middle of a launch. What is in use then stays until it is freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Device;

struct GraphAllocation : std::enable_shared_from_this<GraphAllocation> {
  GraphAllocation(Device& device, std::size_t size);  // throws Error(OUT_OF_MEMORY)
  ~GraphAllocation();
  GraphAllocation(const GraphAllocation&) = delete;
  GraphAllocation& operator=(const GraphAllocation&) = delete;

  // A launch that allocates or frees. Throws Error(INVALID_VALUE) when it is in that state already.
  void take_into_use();
  void end_use();
  bool in_use() const { return used_ != nullptr; }

  Device& device;
  const std::size_t size;
  std::uint64_t address = 0;
  bool instantiated = false;  // of such a graph there is one executable at a time

 private:
  std::shared_ptr<GraphAllocation> used_;  // itself, while it is in use
};

// The allocation that begins at the address, or null.
std::shared_ptr<GraphAllocation> find_graph_allocation(std::uint64_t address);
std::shared_ptr<GraphAllocation> make_graph_allocation(Device& device, std::size_t size);

// cuDeviceGetGraphMemAttribute and its like. Throw Error(INVALID_VALUE).
cuuint64_t graph_memory_attribute(const Device& device, CUgraphMem_attribute attribute);
void reset_graph_memory_attribute(const Device& device, CUgraphMem_attribute attribute);

}  // namespace softgpu::driver
