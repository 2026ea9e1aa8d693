// Handlers of what a session gives to and takes from other processes of its user.
#include <algorithm>

#include "generated/handlers.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {
namespace {

/// The reply refers to the ticket until it is encoded.
CUresult give_out(Call& x, Export object, std::span<const std::byte>& reply) {
  static thread_local ExportTicket ticket;
  if (!x.equipment.state.user || !x.equipment.export_door->open()) return CUDA_ERROR_NOT_SUPPORTED;
  const auto made = x.equipment.exports.add(std::move(object));
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  ticket = *made;
  reply = ticket.as_bytes();
  return CUDA_SUCCESS;
}

/// CUDA_ERROR_INVALID_HANDLE for bytes that are no ticket of one of `kinds`.
CUresult read_ticket(Call& x, std::span<const std::byte> bytes, std::initializer_list<ExportKind> kinds,
                     ExportTicket& out) {
  if (!x.equipment.state.user) return CUDA_ERROR_NOT_SUPPORTED;
  const auto ticket = ExportTicket::read(bytes);
  if (!ticket || std::find(kinds.begin(), kinds.end(), static_cast<ExportKind>(ticket->kind)) == kinds.end())
    return CUDA_ERROR_INVALID_HANDLE;
  out = *ticket;
  return CUDA_SUCCESS;
}

/// The session's ordinal of a device; -1 when it has no share of it.
std::int32_t ordinal_of(const Call& x, const std::string& uuid) {
  const auto& devices = x.equipment.state.devices;
  const auto found =
      std::find_if(devices.begin(), devices.end(), [&](const DeviceShare& d) { return d.uuid == uuid; });
  return found == devices.end() ? -1 : static_cast<std::int32_t>(found - devices.begin());
}

const std::string& uuid_of(const Call& x, std::int32_t device) {
  return x.equipment.state.devices[static_cast<std::size_t>(device)].uuid;
}

bool may_mint(const Call& x, std::uint64_t memory) {
  return x.handles.vacant(wire::Kind::allocation, memory);
}

/// Memory of this session under a second handle: it is the same memory, and counts once.
CUresult import_own(Call& x, const ExportTicket& ticket, std::uint64_t memory, replies::ImportMemory& reply) {
  // The driver refuses to open in a process what that process gave out.
  if (static_cast<ExportKind>(ticket.kind) == ExportKind::memory) return CUDA_ERROR_INVALID_CONTEXT;
  const auto found = x.equipment.exports.find(ticket);
  const auto own = found ? found->memory.lock() : nullptr;
  if (own == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  reply.device = ordinal_of(x, found->uuid);
  reply.size = reply.length = own->size();
  reply.counted = 1;
  x.handles.bind(wire::Kind::allocation, memory, own->handle());
  x.session.physical.emplace(memory, own);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_ExportMemory(Call& x, const messages::ExportMemory& m, replies::ExportMemory& reply) {
  const DeviceArena* const arena = x.equipment.arena(m.device);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Export object;
  object.kind = ExportKind::memory;
  object.uuid = uuid_of(x, m.device);
  object.length = m.size;
  object.pool = m.pool;
  const auto memory = arena->memory_at(m.address, m.size, object.offset);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = memory->share(); bad != CUDA_SUCCESS) return bad;
  object.memory = memory;
  return give_out(x, std::move(object), reply.ticket);
}

CUresult run_ExportPhysical(Call& x, const messages::ExportPhysical& m, replies::ExportPhysical& reply) {
  const auto memory = x.session.physical.find(m.memory);
  if (memory == x.session.physical.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = memory->second->share(); bad != CUDA_SUCCESS) return bad;
  const std::int32_t device = x.ordinal(memory->second->location().id);
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  Export object;
  object.kind = ExportKind::physical;
  object.uuid = uuid_of(x, device);
  object.length = memory->second->size();
  object.memory = memory->second;
  return give_out(x, std::move(object), reply.ticket);
}

CUresult run_ExportPool(Call& x, const messages::ExportPool& m, replies::ExportPool& reply) {
  if (x.equipment.arena(m.device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Export object;
  object.kind = ExportKind::pool;
  object.uuid = uuid_of(x, m.device);
  object.pool = m.pool;
  return give_out(x, std::move(object), reply.ticket);
}

CUresult run_ExportEvent(Call& x, const messages::ExportEvent& m, replies::ExportEvent& reply) {
  CUevent event = nullptr;
  if (!x.handles.find(wire::Kind::event, m.event, event)) return CUDA_ERROR_INVALID_HANDLE;
  Export object;
  object.kind = ExportKind::event;
  object.event = m.event;
  if (const CUresult bad = x.api.cuIpcGetEventHandle_(&object.event_handle, event); bad != CUDA_SUCCESS)
    return bad;
  return give_out(x, std::move(object), reply.ticket);
}

CUresult run_EndExport(Call& x, const messages::EndExport& m, replies::EndExport&) {
  switch (static_cast<ExportKind>(m.kind)) {
    case ExportKind::memory: {
      const DeviceArena* const arena = x.equipment.arena(m.device);
      std::uint64_t offset = 0;
      const auto memory = arena == nullptr ? nullptr : arena->memory_at(m.object, 1, offset);
      if (memory != nullptr) x.equipment.exports.end_memory(memory.get(), offset);
      return CUDA_SUCCESS;
    }
    case ExportKind::event:
      x.equipment.exports.end_event(m.object);
      return CUDA_SUCCESS;
    case ExportKind::pool:
      x.equipment.exports.end_pool(m.object);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult run_ImportMemory(Call& x, const messages::ImportMemory& m, replies::ImportMemory& reply) {
  if (!may_mint(x, m.memory)) return CUDA_ERROR_INVALID_HANDLE;
  ExportTicket ticket;
  const auto kind = static_cast<ExportKind>(m.kind);
  if (kind != ExportKind::memory && kind != ExportKind::physical) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = read_ticket(x, m.ticket, {kind}, ticket); bad != CUDA_SUCCESS) return bad;
  if (x.equipment.exports.is_own(ticket)) return import_own(x, ticket, m.memory, reply);
  FetchedExport fetched;
  if (const CUresult bad = fetch_export(ticket, *x.equipment.state.user, fetched); bad != CUDA_SUCCESS)
    return bad;
  reply.device = ordinal_of(x, fetched.object.uuid);
  CUdevice device = 0;
  const DeviceArena* const arena = x.equipment.arena(reply.device);
  if (arena == nullptr || !x.device(reply.device, device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (fetched.size % arena->granularity() != 0) return CUDA_ERROR_INVALID_HANDLE;
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  std::shared_ptr<PhysicalMemory> memory;
  const CUresult result =
      PhysicalMemory::import(x.api, x.equipment.state.memory[static_cast<std::size_t>(reply.device)],
                             fetched.size, location, fetched.descriptor, memory);
  if (result != CUDA_SUCCESS) return result;
  x.handles.bind(wire::Kind::allocation, m.memory, memory->handle());
  x.session.physical.emplace(m.memory, std::move(memory));
  reply.size = fetched.size;
  reply.offset = fetched.object.offset;
  reply.length = fetched.object.length;
  reply.pool = fetched.object.pool;
  return CUDA_SUCCESS;
}

CUresult run_ImportPool(Call& x, const messages::ImportPool& m, replies::ImportPool& reply) {
  ExportTicket ticket;
  if (const CUresult bad = read_ticket(x, m.ticket, {ExportKind::pool}, ticket); bad != CUDA_SUCCESS)
    return bad;
  std::optional<Export> found;
  if (x.equipment.exports.is_own(ticket)) {
    found = x.equipment.exports.find(ticket);
  } else if (FetchedExport fetched; fetch_export(ticket, *x.equipment.state.user, fetched) == CUDA_SUCCESS) {
    found = std::move(fetched.object);
  }
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  reply.device = ordinal_of(x, found->uuid);
  reply.pool = found->pool;
  return reply.device < 0 ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult run_ImportEvent(Call& x, const messages::ImportEvent& m, replies::ImportEvent&) {
  if (!x.handles.vacant(wire::Kind::event, m.event)) return CUDA_ERROR_INVALID_HANDLE;
  ExportTicket ticket;
  if (const CUresult bad = read_ticket(x, m.ticket, {ExportKind::event}, ticket); bad != CUDA_SUCCESS)
    return bad;
  if (x.equipment.exports.is_own(ticket)) return CUDA_ERROR_INVALID_CONTEXT;
  FetchedExport fetched;
  if (const CUresult bad = fetch_export(ticket, *x.equipment.state.user, fetched); bad != CUDA_SUCCESS)
    return bad;
  CUevent event = nullptr;
  const CUresult result = x.api.cuIpcOpenEventHandle_(&event, fetched.object.event_handle);
  if (result != CUDA_SUCCESS) return result;
  x.handles.bind(wire::Kind::event, m.event, event);
  x.equipment.parking.obstacles.event_opened();
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker
