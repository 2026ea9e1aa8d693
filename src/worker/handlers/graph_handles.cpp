#include "worker/handlers/graph_handles.h"

namespace gpupool::worker {

using wire::Kind;

bool GraphHandles::to_wire(Kind kind, const void* handle, std::uint64_t& out) {
  out = 0;
  if (kind == Kind::graph) {
    out = x_.session.graphs.graph(static_cast<CUgraph>(const_cast<void*>(handle)));
    return out != 0;
  }
  const auto look = [&](Kind among) {
    x_.handles.each(among, [&](std::uint64_t value, void* known) {
      if (known == handle) out = value;
    });
    return out != 0;
  };
  if (look(kind)) return true;
  if (kind == Kind::function) {
    // A launch by a CUkernel runs the function that the driver made from it.
    if (look(Kind::kernel)) return true;
    x_.handles.each(Kind::kernel, [&](std::uint64_t value, void* known) {
      CUfunction made = nullptr;
      if (out == 0 && x_.api.cuKernelGetFunction_(&made, static_cast<CUkernel>(known)) == CUDA_SUCCESS &&
          made == handle)
        out = value;
    });
  }
  return out != 0;
}

bool GraphHandles::from_wire(Kind kind, std::uint64_t value, void*& out) {
  return kind != Kind::none && value != 0 && x_.handles.find(kind, value, out);
}

bool GraphHandles::device(int& ordinal, bool to_wire) {
  if (to_wire) {
    ordinal = x_.ordinal(ordinal);
    return ordinal >= 0;
  }
  CUdevice found = 0;
  if (!x_.device(ordinal, found)) return false;
  ordinal = found;
  return true;
}

bool GraphHandles::host_to_wire(CUhostFn, void* data, std::uint64_t& token) {
  token = x_.conversation.host_calls.token(data);
  return token != 0;
}

bool GraphHandles::host_from_wire(std::uint64_t token, CUhostFn& function, void*& data) {
  function = &HostCalls::call;
  data = token == 0 ? nullptr : x_.conversation.host_calls.argument(token);
  return data != nullptr;
}

const KernelInfo* GraphHandles::kernel(std::uint64_t function) {
  CUfunction found = nullptr;
  if (!x_.handles.find(Kind::function, function, found)) return nullptr;
  return static_cast<const KernelInfo*>(x_.handles.note(function));
}

CUresult decode_node(Call& x, std::span<const std::byte> bytes, graphs::NodeParams& out) {
  GraphHandles handles(x);
  wire::Reader in(bytes);
  if (const CUresult bad = graphs::decode(in, handles, out); bad != CUDA_SUCCESS) return bad;
  if (out.params.type != CU_GRAPH_NODE_TYPE_MEMCPY) return CUDA_SUCCESS;
  CUDA_MEMCPY3D& copy = out.params.memcpy.copyParams;
  const auto on_device = [](CUmemorytype type) {
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY;
  };
  copy.srcHost = copy.dstHost = nullptr;
  return on_device(copy.srcMemoryType) && on_device(copy.dstMemoryType) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace gpupool::worker
