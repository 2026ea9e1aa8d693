// Handles in the parameters of nodes: the client's on the wire, the driver's here.
#pragma once

#include "shared_api/node_codec.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {

class GraphHandles final : public graphs::HandleMap {
 public:
  explicit GraphHandles(Call& x) : x_(x) {}

  bool to_wire(wire::Kind kind, const void* handle, std::uint64_t& out) override;
  bool from_wire(wire::Kind kind, std::uint64_t value, void*& out) override;
  bool device(int& ordinal, bool to_wire) override;
  bool host_to_wire(CUhostFn function, void* data, std::uint64_t& token) override;
  bool host_from_wire(std::uint64_t token, CUhostFn& function, void*& data) override;
  const KernelInfo* kernel(std::uint64_t function) override;

 private:
  Call& x_;
};

/// Decodes parameters that came from the client. A copy may touch nothing but what is on the device: a host
/// address would be one of this process.
CUresult decode_node(Call& x, std::span<const std::byte> bytes, graphs::NodeParams& out);

}  // namespace gpupool::worker
