// Virtual memory management by the program.
#include <cuda.h>

#include <cstring>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/call/refuse.h"
#include "client/lease/ticket_file.h"
#include "client/memory/device_memory.h"
#include "client/memory/exported_objects.h"
#include "client/memory/virtual_memory.h"
#include "client/process/session_belongings.h"
#include "client/session/attach_again.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

class Session final : public VirtualMemoryHost {
 public:
  std::uint64_t granularity(int device) override { return device_memory().granularity(device); }
  std::optional<std::uint64_t> set_aside(int device, std::uint64_t size, std::uint64_t aligned,
                                         std::uint64_t wish) override {
    return device_memory().set_aside(device, size, aligned, wish);
  }
  void give_back(int device, std::uint64_t address, std::uint64_t size) override {
    device_memory().give_back(device, address, size);
  }
  bool charge(int device, std::uint64_t bytes) override { return device_memory().charge(device, bytes); }
  void discharge(int device, std::uint64_t bytes) override { device_memory().discharge(device, bytes); }

  CUresult create(std::uint64_t memory, int device, std::uint64_t size,
                  const CUmemAllocationProp& properties) override {
    messages::CreatePhysical m;
    m.memory = memory;
    m.device = device;
    m.size = size;
    m.compression = properties.allocFlags.compressionType;
    m.rdma = properties.allocFlags.gpuDirectRDMACapable;
    if (runtime().several()) remember_physical(memory, device);
    const NoLeaseWait no_wait;
    const CUresult result = post(m, any_context);
    if (result != CUDA_SUCCESS && runtime().several()) forget_physical(memory);
    return result;
  }
  CUresult import(std::uint64_t memory, ExportKind kind, std::span<const std::byte> ticket,
                  ImportedMemory& out) override {
    const CUresult result = import_once(memory, kind, ticket, out);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    // The share may be full of memory that is kept for the next allocation.
    int count = 0;
    static_cast<void>(cuDeviceGetCount(&count));
    for (int device = 0; device < count; ++device) {
      if (const CUresult bad = device_memory().trim(device); bad != CUDA_SUCCESS) return bad;
    }
    return import_once(memory, kind, ticket, out);
  }
  CUresult release(std::uint64_t memory) override {
    messages::ReleasePhysical m;
    m.memory = memory;
    const CUresult result = post(m, any_context);
    if (runtime().several()) forget_physical(memory);
    return result;
  }
  CUresult map(int place, std::uint64_t address, std::uint64_t size, std::uint64_t offset,
               std::uint64_t memory) override {
    messages::MapPhysical m;
    m.place = place;
    m.address = address;
    m.size = size;
    m.offset = offset;
    m.memory = memory;
    const NoLeaseWait no_wait;
    return post(m, any_context);
  }
  CUresult unmap(int place, std::uint64_t address, std::uint64_t size) override {
    messages::UnmapPhysical m;
    m.place = place;
    m.address = address;
    m.size = size;
    return post(m, any_context);
  }
  CUresult set_access(int place, std::uint64_t address, std::uint64_t size, unsigned access) override {
    messages::SetPhysicalAccess m;
    m.place = place;
    m.address = address;
    m.size = size;
    m.access = access;
    const NoLeaseWait no_wait;
    return post(m, any_context);
  }

 private:
  CUresult import_once(std::uint64_t memory, ExportKind kind, std::span<const std::byte> ticket,
                       ImportedMemory& out) {
    messages::ImportMemory m;
    m.kind = static_cast<std::uint8_t>(kind);
    m.memory = memory;
    m.ticket = ticket;
    replies::ImportMemory reply;
    std::vector<std::byte> bytes;
    CUresult own = CUDA_ERROR_UNKNOWN;
    // Of several workers the current context's takes it: that is where it will be used.
    const std::uint64_t context = runtime().several() ? current_context() : any_context;
    const CUresult result = ask(m, reply, context, bytes, {}, nullptr, &own);
    if (own == CUDA_SUCCESS && runtime().several()) {
      if (!from_worker(worker_of_context(context), reply.device))
        return runtime().lost(worker_of_context(context));
      remember_physical(memory, reply.device);
    }
    if (result == CUDA_SUCCESS) {
      out = {reply.device, reply.size, reply.offset, reply.length, reply.pool, reply.counted != 0};
    } else if (own == CUDA_SUCCESS) {  // it is there, but the program hears of an earlier error
      static_cast<void>(release(memory));
    }
    return result;
  }
};

/// The device whose arena addresses come from: any would do, the current one is the likeliest to use them.
int place_of_addresses() {
  const Context* const context = tables().contexts.find(current_context());
  return context == nullptr ? 0 : context->device;
}

CUresult check(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return static_cast<CUresult>(
        refuse("cuMemCreate", "memory is shared with another process by a file descriptor only"));
  }
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return static_cast<CUresult>(
        refuse("cuMemCreate", "only memory of a device: the host's is in another machine"));
  }
  int count = 0;
  if (const CUresult bad = cuDeviceGetCount(&count); bad != CUDA_SUCCESS) return bad;
  return properties->location.id >= 0 && properties->location.id < count ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_DEVICE;
}

template <class F>
CUresult connected(F body) try {
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  return body();
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}
/// For calls that send under the lock of the books. Where the lease ends meanwhile such a call fails
/// there, and is done once more when the next lease has come.
template <class F>
CUresult under_lease(F body) {
  return connected([&] {
    const CUresult result = body();
    return result == CUDA_ERROR_DEVICE_UNAVAILABLE ? connected(body) : result;
  });
}
template <class F>
CUresult giving_back(F body) try {
  if (const CUresult bad = runtime().enter_without_lease(); bad != CUDA_SUCCESS) return bad;
  return body();
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

namespace gpupool::client {

VirtualMemory& virtual_memory() {
  static VirtualMemory& only =
      kept_for_session<VirtualMemory>([](VirtualMemory& kept) { kept.forget(); }, *new Session);
  return only;
}

}  // namespace gpupool::client

namespace gpupool::client::api {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (granularity == nullptr ||
      (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult bad = check(prop); bad != CUDA_SUCCESS) return bad;
  return connected([&] {
    *granularity = device_memory().granularity(prop->location.id);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (ptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return connected([&] {
    std::uint64_t address = 0;
    const CUresult result = virtual_memory().reserve(place_of_addresses(), size, alignment, addr, address);
    if (result == CUDA_SUCCESS) *ptr = address;
    return result;
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return giving_back([&] { return virtual_memory().free(ptr, size); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check(prop); bad != CUDA_SUCCESS) return bad;
  return under_lease([&] {
    std::uint64_t made = 0;
    const CUresult result = virtual_memory().create(size, *prop, made);
    if (result == CUDA_SUCCESS) *handle = made;
    return result;
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return giving_back([&] { return virtual_memory().release(handle); });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return under_lease([&] { return virtual_memory().map(ptr, size, offset, handle); });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return giving_back([&] { return virtual_memory().unmap(ptr, size); });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t n = 0; n < count; ++n) {
    if (desc[n].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return static_cast<CUresult>(
          refuse("cuMemSetAccess", "only the device has access to its memory: the host is another machine"));
    }
    if (desc[n].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[n].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc[n].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return under_lease([&] {
    for (size_t n = 0; n < count; ++n) {
      const CUresult bad = virtual_memory().set_access(ptr, size, desc[n].location.id, desc[n].flags);
      if (bad != CUDA_SUCCESS) return bad;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = virtual_memory().find(ptr);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  const bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == found->device;
  *flags = own ? found->access : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return prop == nullptr ? CUDA_ERROR_INVALID_VALUE : virtual_memory().properties(handle, *prop);
}

// The descriptor is of a file that holds a ticket: like one of the driver, it can be passed over a socket or
// inherited, and closed once it was imported.
CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (shareableHandle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp properties{};
  if (const CUresult bad = virtual_memory().properties(handle, properties); bad != CUDA_SUCCESS) return bad;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      properties.requestedHandleTypes != handleType) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return connected([&] {
    TicketBytes ticket;
    const CUresult result = export_physical(handle, ticket);
    return result == CUDA_SUCCESS ? make_ticket_file(ticket, *static_cast<int*>(shareableHandle)) : result;
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  return connected([&] {
    TicketBytes ticket;
    const auto descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(osHandle));
    if (!read_ticket_file(descriptor, ticket)) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t made = 0;
    ImportedMemory imported;
    const CUresult result = virtual_memory().import(ExportKind::physical, ticket, made, imported);
    if (result == CUDA_SUCCESS) *handle = made;
    return result;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t found = 0;
  const CUresult result = virtual_memory().retain(reinterpret_cast<std::uint64_t>(addr), found);
  if (result == CUDA_SUCCESS) *handle = found;
  return result;
}

}  // namespace gpupool::client::api
