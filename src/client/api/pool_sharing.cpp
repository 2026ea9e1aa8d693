// Memory pools whose memory goes to other processes.
#include <cuda.h>

#include <cstddef>
#include <cstring>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/lease/ticket_file.h"
#include "client/memory/device_memory.h"
#include "client/memory/exported_objects.h"
#include "client/memory/opened_memory.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

/// Which worker gave a ticket out.
std::array<std::byte, 16> office_of(std::span<const std::byte, ExportTicket::bytes> ticket) {
  std::array<std::byte, 16> office{};
  std::memcpy(office.data(), ticket.data() + offsetof(ExportTicket, office), office.size());
  return office;
}

CUresult check_type(CUmemAllocationHandleType type, unsigned long long flags) {
  return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0 ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType, unsigned long long flags) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (handle_out == nullptr || !object->shareable) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_type(handleType, flags); bad != CUDA_SUCCESS) return bad;
  TicketBytes ticket;
  const CUresult result = export_pool(raw(pool), object->device, ticket);
  return result == CUDA_SUCCESS ? make_ticket_file(ticket, *static_cast<int*>(handle_out)) : result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType, unsigned long long flags) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_type(handleType, flags); bad != CUDA_SUCCESS) return bad;
  TicketBytes ticket;
  if (!read_ticket_file(static_cast<int>(reinterpret_cast<std::intptr_t>(handle)), ticket))
    return CUDA_ERROR_INVALID_VALUE;
  messages::ImportPool m;
  m.ticket = ticket;
  replies::ImportPool reply;
  std::vector<std::byte> bytes;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  // Of several workers the current context's takes it.
  const std::uint64_t context = runtime().several() ? current_context() : any_context;
  if (const CUresult bad = ask(m, reply, context, bytes); bad != CUDA_SUCCESS) return bad;
  if (runtime().several() && !from_worker(worker_of_context(context), reply.device))
    return runtime().lost(worker_of_context(context));
  MemoryPool* made = nullptr;
  const std::uint64_t minted = tables().pools.mint(made);
  if (minted == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->kind = MemoryPool::Kind::device;
  made->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  made->location.id = reply.device;
  made->device = reply.device;
  made->imported = true;
  made->office = office_of(ticket);
  made->foreign = reply.pool;
  *pool_out = handle_as<CUmemoryPool>(minted);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = device_memory().find(ptr);
  if (!found || found->block.address != ptr) return CUDA_ERROR_INVALID_VALUE;
  const MemoryPool* const pool = tables().pools.find(found->block.owner);
  if (pool == nullptr || !pool->shareable) return CUDA_ERROR_INVALID_VALUE;
  static_assert(sizeof(shareData_out->reserved) == ExportTicket::bytes);
  return export_memory(*found, found->block.owner,
                       std::span<std::byte, ExportTicket::bytes>(
                           reinterpret_cast<std::byte*>(shareData_out->reserved), ExportTicket::bytes));
}

// The pointer is freed like one that the pool gave.
CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) try {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (ptr_out == nullptr || shareData == nullptr || !object->imported) return CUDA_ERROR_INVALID_VALUE;
  OpenedMemory::Ticket ticket;
  std::memcpy(ticket.data(), shareData->reserved, ticket.size());
  if (office_of(ticket) != object->office) return CUDA_ERROR_INVALID_VALUE;  // of another pool
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  CUdeviceptr address = 0;
  const CUresult result = opened_memory().open(ticket, any_context, raw(pool), object->foreign, address);
  if (result == CUDA_SUCCESS) *ptr_out = address;
  return result;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace gpupool::client::api
