// Handlers of the program's own virtual memory management.
#include "generated/handlers.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {

CUresult run_CreatePhysical(Call& x, const messages::CreatePhysical& m, replies::CreatePhysical&) {
  if (!x.handles.vacant(wire::Kind::allocation, m.memory)) return CUDA_ERROR_INVALID_HANDLE;
  const DeviceArena* const arena = x.equipment.arena(m.device);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (m.size == 0 || m.size % arena->granularity() != 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp properties = arena->properties();
  properties.allocFlags.compressionType = m.compression;
  properties.allocFlags.gpuDirectRDMACapable = m.rdma;
  std::shared_ptr<PhysicalMemory> memory;
  const CUresult result = PhysicalMemory::create(
      x.api, x.equipment.state.memory[static_cast<std::size_t>(m.device)], m.size, properties, memory);
  if (result != CUDA_SUCCESS) return result;
  memory->compression = m.compression;
  memory->rdma = m.rdma;
  x.handles.bind(wire::Kind::allocation, m.memory, memory->handle());
  x.session.physical.emplace(m.memory, std::move(memory));
  return CUDA_SUCCESS;
}

CUresult run_ReleasePhysical(Call& x, const messages::ReleasePhysical& m, replies::ReleasePhysical&) {
  x.handles.drop(wire::Kind::allocation, m.memory);
  return x.session.physical.erase(m.memory) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult run_MapPhysical(Call& x, const messages::MapPhysical& m, replies::MapPhysical&) {
  DeviceArena* const arena = x.equipment.arena(m.place);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const auto memory = x.session.physical.find(m.memory);
  if (memory == x.session.physical.end()) return CUDA_ERROR_INVALID_HANDLE;
  return arena->map(m.address, m.size, m.offset, memory->second);
}

CUresult run_UnmapPhysical(Call& x, const messages::UnmapPhysical& m, replies::UnmapPhysical&) {
  DeviceArena* const arena = x.equipment.arena(m.place);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  x.session.in_use.wait_unused(x.equipment.device_memory());
  x.session.synchronize_all();  // an error of earlier work is reported where that work is waited for
  return arena->unmap_all(m.address, m.size);
}

CUresult run_SetPhysicalAccess(Call& x, const messages::SetPhysicalAccess& m, replies::SetPhysicalAccess&) {
  DeviceArena* const arena = x.equipment.arena(m.place);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (m.access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    x.session.in_use.wait_unused(x.equipment.device_memory());
    x.session.synchronize_all();
  }
  return arena->set_access(m.address, m.size, static_cast<CUmemAccess_flags>(m.access));
}

}  // namespace gpupool::worker
