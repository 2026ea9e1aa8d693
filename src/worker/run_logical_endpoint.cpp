// Handlers of logical endpoints. Ids are the driver's numbers, so each is checked to be the session's.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "generated/handlers.h"
#include "generated/structs.h"
#include "worker/elements.h"
#include "worker/executor.h"

namespace gpupool::worker {
namespace {

/// Binds with `call(device)` and keeps the memory for as long as it is bound.
template <class M, class F>
CUresult bind_memory(Executor& x, const M& m, std::shared_ptr<PhysicalMemory> memory, F call) {
  CUdevice device = 0;
  BoundMemory* const bound = x.endpoints.bound_to(m.leId);
  if (bound == nullptr || memory == nullptr || memory->is_multicast()) return CUDA_ERROR_INVALID_VALUE;
  if (!x.device(m.dev, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (bound->size() >= wire::max_handles) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call(device);
  if (result == CUDA_SUCCESS) bound->add(device, m.offset, m.size, std::move(memory));
  return result;
}

}  // namespace

CUresult run_cuLogicalEndpointIdReserve(Executor& x, const messages::cuLogicalEndpointIdReserve& m,
                                        replies::cuLogicalEndpointIdReserve& reply) {
  if (x.endpoints.reservations() >= wire::max_handles) return CUDA_ERROR_OUT_OF_MEMORY;
  CUlogicalEndpointId first = 0;
  const CUresult result = x.api.cuLogicalEndpointIdReserve_(&first, m.count);
  if (result != CUDA_SUCCESS) return result;
  x.endpoints.reserve(first, m.count);
  reply.baseLeId = first;
  return CUDA_SUCCESS;
}

CUresult run_cuLogicalEndpointIdRelease(Executor& x, const messages::cuLogicalEndpointIdRelease& m,
                                        replies::cuLogicalEndpointIdRelease&) {
  if (!x.endpoints.is_reservation(m.baseLeId, m.count)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = x.api.cuLogicalEndpointIdRelease_(m.baseLeId, m.count);
  if (result == CUDA_SUCCESS) x.endpoints.release(m.baseLeId);
  return result;
}

CUresult run_cuLogicalEndpointCreate(Executor& x, const messages::cuLogicalEndpointCreate& m,
                                     replies::cuLogicalEndpointCreate&) {
  if (!x.endpoints.owns(m.leId)) return CUDA_ERROR_INVALID_VALUE;
  CUlogicalEndpointProp properties{};
  std::memcpy(&properties, m.prop.data(), sizeof(properties));
  if (const CUresult bad = translate_in(x, properties); bad != CUDA_SUCCESS) return bad;
  const CUresult result = x.api.cuLogicalEndpointCreate_(m.leId, &properties);
  if (result == CUDA_SUCCESS) x.endpoints.add(m.leId);
  return result;
}

CUresult run_cuLogicalEndpointAddDevice(Executor& x, const messages::cuLogicalEndpointAddDevice& m,
                                        replies::cuLogicalEndpointAddDevice&) {
  CUdevice device = 0;
  if (x.endpoints.bound_to(m.leId) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!x.device(m.dev, device)) return CUDA_ERROR_INVALID_DEVICE;
  return x.api.cuLogicalEndpointAddDevice_(m.leId, device);
}

CUresult run_cuLogicalEndpointDestroy(Executor& x, const messages::cuLogicalEndpointDestroy& m,
                                      replies::cuLogicalEndpointDestroy&) {
  if (x.endpoints.bound_to(m.leId) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = x.api.cuLogicalEndpointDestroy_(m.leId);
  if (result == CUDA_SUCCESS) x.endpoints.remove(m.leId);
  return result;
}

CUresult run_cuLogicalEndpointBindAddr(Executor& x, const messages::cuLogicalEndpointBindAddr& m,
                                       replies::cuLogicalEndpointBindAddr&) {
  return bind_memory(x, m, x.memory_at(m.ptr, m.size), [&](CUdevice device) {
    return x.api.cuLogicalEndpointBindAddr_(m.leId, device, m.offset, reinterpret_cast<void*>(m.ptr), m.size,
                                            m.flags);
  });
}

CUresult run_cuLogicalEndpointBindMem(Executor& x, const messages::cuLogicalEndpointBindMem& m,
                                      replies::cuLogicalEndpointBindMem&) {
  const auto memory = x.physical.find(m.memHandle);
  if (memory == x.physical.end()) return CUDA_ERROR_INVALID_HANDLE;
  return bind_memory(x, m, memory->second, [&](CUdevice device) {
    return x.api.cuLogicalEndpointBindMem_(m.leId, device, m.offset, memory->second->handle(), m.memOffset,
                                           m.size, m.flags);
  });
}

CUresult run_cuLogicalEndpointUnbind(Executor& x, const messages::cuLogicalEndpointUnbind& m,
                                     replies::cuLogicalEndpointUnbind&) {
  CUdevice device = 0;
  BoundMemory* const bound = x.endpoints.bound_to(m.leId);
  if (bound == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!x.device(m.dev, device)) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult result = x.api.cuLogicalEndpointUnbind_(m.leId, device, m.offset, m.size);
  if (result == CUDA_SUCCESS) bound->remove(device, m.offset, m.size);
  return result;
}

CUresult run_cuLogicalEndpointQuery(Executor& x, const messages::cuLogicalEndpointQuery& m,
                                    replies::cuLogicalEndpointQuery& reply) {
  if (!x.endpoints.owns(m.leId, m.count)) return CUDA_ERROR_INVALID_VALUE;
  int status = 0;
  const CUresult result = x.api.cuLogicalEndpointQuery_(m.leId, m.count, &status);
  reply.queryStatus = status;
  return result;
}

CUresult run_CliqueInfo(Executor& x, const messages::CliqueInfo& m, replies::CliqueInfo& reply) {
  CUdevice device = 0;
  if (!x.device(m.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  static thread_local std::vector<CUcliqueInfo> cliques;  // the reply refers to it until it is encoded
  std::size_t count = m.count;
  if (!make_elements(count, cliques)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = x.api.cuDeviceGetCliqueInfo_(cliques.data(), &count, device);
  if (result != CUDA_SUCCESS) return result;
  cliques.resize(std::min<std::size_t>(count, cliques.size()));
  reply.cliques = std::as_bytes(std::span(cliques));
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker
