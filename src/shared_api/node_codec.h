// Parameters of graph nodes on the wire: the union of cuda.h with everything it points to.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "protocol/kernel_info.h"
#include "wire/bytes.h"
#include "wire/handle.h"

namespace gpupool::graphs {

/// What handles mean at this end. On the wire they are the client's.
class HandleMap {
 public:
  virtual ~HandleMap() = default;
  /// A handle of this end as the client's; false for an unknown one.
  virtual bool to_wire(wire::Kind kind, const void* handle, std::uint64_t& out) = 0;
  virtual bool from_wire(wire::Kind kind, std::uint64_t value, void*& out) = 0;
  /// The client's number of a device as this end's, and the other way round; false for an unknown one.
  virtual bool device(int& ordinal, bool to_wire) = 0;
  /// A function of the program with its argument is a number on the wire; false for an unknown one.
  virtual bool host_to_wire(CUhostFn function, void* data, std::uint64_t& token) = 0;
  virtual bool host_from_wire(std::uint64_t token, CUhostFn& function, void*& data) = 0;
  /// The layout of a kernel's parameters; null for what is no kernel.
  virtual const KernelInfo* kernel(std::uint64_t function) = 0;
};

/// Decoded parameters with what they point to.
struct NodeParams {
  CUgraphNodeParams params;
  std::vector<std::uint64_t> bodies;  ///< of a conditional: the client's handles of its graphs

  std::vector<std::byte> block;
  std::vector<void*> pointers;
  std::vector<CUmemAccessDesc> access;
  std::vector<CUstreamBatchMemOpParams> entries;
  std::vector<CUgraph> graphs;
};

inline constexpr std::uint32_t max_bodies = 4096;
inline constexpr std::uint32_t max_batch = 256;
inline constexpr std::uint32_t max_access = 64;

/// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_SUPPORTED; then what was written is of
/// no use. `bodies` are the client's handles of a conditional's graphs.
CUresult encode(const CUgraphNodeParams& params, HandleMap& handles, wire::Writer& out,
                const std::vector<std::uint64_t>& bodies = {});
/// The pointers in `out.params` lead into `out`, which must not be copied.
CUresult decode(wire::Reader& in, HandleMap& handles, NodeParams& out);

}  // namespace gpupool::graphs
