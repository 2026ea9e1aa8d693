// Handlers of multicast objects. What is bound to one is held here for as long as the driver holds it.
#include <cstring>

#include "generated/handlers.h"
#include "worker/executor.h"

namespace gpupool::worker {
namespace {

using Memory = std::shared_ptr<PhysicalMemory>;

CUresult multicast(const Executor& x, std::uint64_t handle, Memory& out) {
  const auto found = x.physical.find(handle);
  if (found == x.physical.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (!found->second->is_multicast()) return CUDA_ERROR_INVALID_VALUE;
  out = found->second;
  return CUDA_SUCCESS;
}

/// Binds with `call` and keeps `memory`. `device` is the one that the driver takes the memory to be of.
template <class F>
CUresult bind_memory(const Memory& to, CUdevice device, std::uint64_t offset, std::uint64_t size,
                     Memory memory, F call) {
  if (memory == nullptr || memory->is_multicast()) return CUDA_ERROR_INVALID_VALUE;
  if (to->bound.size() >= wire::max_handles) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call();
  if (result == CUDA_SUCCESS) to->bound.add(device, offset, size, std::move(memory));
  return result;
}

CUresult physical(const Executor& x, std::uint64_t handle, Memory& out) {
  const auto found = x.physical.find(handle);
  if (found == x.physical.end()) return CUDA_ERROR_INVALID_HANDLE;
  out = found->second;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_cuMulticastCreate(Executor& x, const messages::cuMulticastCreate& m,
                               replies::cuMulticastCreate&) {
  if (!x.handles.vacant(wire::Kind::allocation, m.mcHandle)) return CUDA_ERROR_INVALID_HANDLE;
  CUmulticastObjectProp properties{};
  std::memcpy(&properties, m.prop.data(), sizeof(properties));
  Memory made;
  const CUresult result = PhysicalMemory::create_multicast(x.api, properties, made);
  if (result != CUDA_SUCCESS) return result;
  x.handles.bind(wire::Kind::allocation, m.mcHandle, made->handle());
  x.physical.emplace(m.mcHandle, std::move(made));
  return CUDA_SUCCESS;
}

CUresult run_cuMulticastBindMem(Executor& x, const messages::cuMulticastBindMem& m,
                                replies::cuMulticastBindMem&) {
  Memory to, memory;
  if (const CUresult bad = multicast(x, m.mcHandle, to); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = physical(x, m.memHandle, memory); bad != CUDA_SUCCESS) return bad;
  return bind_memory(to, memory->location().id, m.mcOffset, m.size, memory, [&] {
    return x.api.cuMulticastBindMem_(to->handle(), m.mcOffset, memory->handle(), m.memOffset, m.size,
                                     m.flags);
  });
}

CUresult run_cuMulticastBindMem_v2(Executor& x, const messages::cuMulticastBindMem_v2& m,
                                   replies::cuMulticastBindMem_v2&) {
  Memory to, memory;
  CUdevice device = 0;
  if (const CUresult bad = multicast(x, m.mcHandle, to); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = physical(x, m.memHandle, memory); bad != CUDA_SUCCESS) return bad;
  if (!x.device(m.dev, device)) return CUDA_ERROR_INVALID_DEVICE;
  return bind_memory(to, device, m.mcOffset, m.size, memory, [&] {
    return x.api.cuMulticastBindMem_v2_(to->handle(), device, m.mcOffset, memory->handle(), m.memOffset,
                                        m.size, m.flags);
  });
}

CUresult run_cuMulticastBindAddr(Executor& x, const messages::cuMulticastBindAddr& m,
                                 replies::cuMulticastBindAddr&) {
  Memory to;
  if (const CUresult bad = multicast(x, m.mcHandle, to); bad != CUDA_SUCCESS) return bad;
  const Memory memory = x.memory_at(m.memptr, m.size);
  const CUdevice device = memory == nullptr ? 0 : memory->location().id;
  return bind_memory(to, device, m.mcOffset, m.size, memory, [&] {
    return x.api.cuMulticastBindAddr_(to->handle(), m.mcOffset, m.memptr, m.size, m.flags);
  });
}

CUresult run_cuMulticastBindAddr_v2(Executor& x, const messages::cuMulticastBindAddr_v2& m,
                                    replies::cuMulticastBindAddr_v2&) {
  Memory to;
  CUdevice device = 0;
  if (const CUresult bad = multicast(x, m.mcHandle, to); bad != CUDA_SUCCESS) return bad;
  if (!x.device(m.dev, device)) return CUDA_ERROR_INVALID_DEVICE;
  return bind_memory(to, device, m.mcOffset, m.size, x.memory_at(m.memptr, m.size), [&] {
    return x.api.cuMulticastBindAddr_v2_(to->handle(), device, m.mcOffset, m.memptr, m.size, m.flags);
  });
}

CUresult run_cuMulticastUnbind(Executor& x, const messages::cuMulticastUnbind& m,
                               replies::cuMulticastUnbind&) {
  Memory from;
  CUdevice device = 0;
  if (const CUresult bad = multicast(x, m.mcHandle, from); bad != CUDA_SUCCESS) return bad;
  if (!x.device(m.dev, device)) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult result = x.api.cuMulticastUnbind_(from->handle(), device, m.mcOffset, m.size);
  if (result == CUDA_SUCCESS) from->bound.remove(device, m.mcOffset, m.size);
  return result;
}

}  // namespace gpupool::worker
