// Memory and events of one process in another one.
#include <cuda.h>

#include <cstring>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/memory/device_memory.h"
#include "client/memory/exported_objects.h"
#include "client/memory/opened_memory.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

/// The program's 64 bytes as a ticket's.
template <class H>
std::span<std::byte, ExportTicket::bytes> bytes_of(H& handle) {
  static_assert(sizeof(handle.reserved) == ExportTicket::bytes);
  return std::span<std::byte, ExportTicket::bytes>(reinterpret_cast<std::byte*>(handle.reserved),
                                                   ExportTicket::bytes);
}

}  // namespace

namespace gpupool::client::api {

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = device_memory().find(dptr);
  if (!found || !can_be_exported(*found)) return CUDA_ERROR_INVALID_VALUE;
  return export_memory(*found, 0, bytes_of(*pHandle));
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) try {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  OpenedMemory::Ticket ticket;
  std::memcpy(ticket.data(), handle.reserved, ticket.size());
  CUdeviceptr address = 0;
  const CUresult result = opened_memory().open(ticket, context, 0, 0, address);
  if (result == CUDA_SUCCESS) *pdptr = address;
  return result;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) try {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = runtime().enter_without_lease(); bad != CUDA_SUCCESS) return bad;
  return opened_memory().close(dptr, false);
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  const Event* const found = tables().events.find(raw(event));
  if (found == nullptr) return bad_handle(wire::Kind::event);
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((found->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
  return export_event(raw(event), found->context, bytes_of(*pHandle));
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Event* made = nullptr;
  const std::uint64_t minted = tables().events.mint(made);
  if (minted == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  made->context = context;
  made->elsewhere.raise(1);  // the other process records it too
  messages::ImportEvent m;
  m.event = minted;
  m.ticket = bytes_of(handle);
  replies::ImportEvent reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, context, bytes, {}, nullptr, &own);
  if (result == CUDA_SUCCESS) {
    *phEvent = handle_as<CUevent>(minted);
    return CUDA_SUCCESS;
  }
  if (own == CUDA_SUCCESS) {  // it is there, but the program hears of an earlier error
    static_cast<void>(api::cuEventDestroy_v2(handle_as<CUevent>(minted)));
  } else {
    tables().events.drop(minted);
  }
  return result;
}

}  // namespace gpupool::client::api
