// Handlers of the program's own virtual memory management.
#include "generated/handlers.h"
#include "worker/session/executor.h"

namespace gpupool::worker {

CUresult run_CreatePhysical(Executor& x, const messages::CreatePhysical& m, replies::CreatePhysical&) {
  if (!x.handles.vacant(wire::Kind::allocation, m.memory)) return CUDA_ERROR_INVALID_HANDLE;
  const DeviceArena* const arena = x.arena(m.device);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (m.size == 0 || m.size % arena->granularity() != 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp properties = arena->properties();
  properties.allocFlags.compressionType = m.compression;
  properties.allocFlags.gpuDirectRDMACapable = m.rdma;
  std::shared_ptr<PhysicalMemory> memory;
  const CUresult result = PhysicalMemory::create(x.api, x.state.memory[static_cast<std::size_t>(m.device)],
                                                 m.size, properties, memory);
  if (result != CUDA_SUCCESS) return result;
  memory->compression = m.compression;
  memory->rdma = m.rdma;
  x.handles.bind(wire::Kind::allocation, m.memory, memory->handle());
  x.physical.emplace(m.memory, std::move(memory));
  return CUDA_SUCCESS;
}

CUresult run_ReleasePhysical(Executor& x, const messages::ReleasePhysical& m, replies::ReleasePhysical&) {
  x.handles.drop(wire::Kind::allocation, m.memory);
  return x.physical.erase(m.memory) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult run_MapPhysical(Executor& x, const messages::MapPhysical& m, replies::MapPhysical&) {
  DeviceArena* const arena = x.arena(m.place);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const auto memory = x.physical.find(m.memory);
  if (memory == x.physical.end()) return CUDA_ERROR_INVALID_HANDLE;
  return arena->map(m.address, m.size, m.offset, memory->second);
}

CUresult run_UnmapPhysical(Executor& x, const messages::UnmapPhysical& m, replies::UnmapPhysical&) {
  DeviceArena* const arena = x.arena(m.place);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  x.in_use.wait_unused(x.device_memory());
  x.synchronize_all();  // an error of earlier work is reported where that work is waited for
  return arena->unmap_all(m.address, m.size);
}

CUresult run_SetPhysicalAccess(Executor& x, const messages::SetPhysicalAccess& m,
                               replies::SetPhysicalAccess&) {
  DeviceArena* const arena = x.arena(m.place);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (m.access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    x.in_use.wait_unused(x.device_memory());
    x.synchronize_all();
  }
  return arena->set_access(m.address, m.size, static_cast<CUmemAccess_flags>(m.access));
}

}  // namespace gpupool::worker
