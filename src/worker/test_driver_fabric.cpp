// The test driver's multicast objects and logical endpoints: each call succeeds and is written down, so that
// a test sees what reached the driver.
#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

/// Calls since the test last emptied it, one a line: the name and its numbers.
extern "C" {
__attribute__((visibility("default"))) std::string test_driver_fabric_calls;
}

namespace {

/// Multicast objects are told from physical memory (small numbers) by their handles.
constexpr CUmemGenericAllocationHandle first_multicast = 0x7000;

template <class... T>
CUresult wrote(const char* name, T... values) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  test_driver_fabric_calls += name;
  ((test_driver_fabric_calls += " " + std::to_string(static_cast<std::uint64_t>(values))), ...);
  test_driver_fabric_calls += '\n';
  return CUDA_SUCCESS;
}

}  // namespace

EXPORT cuMulticastCreate(CUmemGenericAllocationHandle* out, const CUmulticastObjectProp* prop) {
  static CUmemGenericAllocationHandle next = first_multicast;
  *out = next++;
  return wrote("create", prop->numDevices, prop->size, prop->handleTypes, prop->flags);
}
EXPORT cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device) {
  return wrote("add", object, device);
}
EXPORT cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t at, CUmemGenericAllocationHandle memory,
                          size_t from, size_t size, unsigned long long flags) {
  return wrote("bind", object, at, memory, from, size, flags);
}
EXPORT cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                             CUmemGenericAllocationHandle memory, size_t from, size_t size,
                             unsigned long long flags) {
  return wrote("bind_v2", object, device, at, memory, from, size, flags);
}
EXPORT cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t at, CUdeviceptr from, size_t size,
                           unsigned long long flags) {
  return wrote("bind_address", object, at, from, size, flags);
}
EXPORT cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                              CUdeviceptr from, size_t size, unsigned long long flags) {
  return wrote("bind_address_v2", object, device, at, from, size, flags);
}
EXPORT cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t at, size_t size) {
  return wrote("unbind", object, device, at, size);
}
EXPORT cuMulticastGetGranularity(size_t* out, const CUmulticastObjectProp* prop,
                                 CUmulticastGranularity_flags option) {
  *out = 2u << 20;
  return wrote("granularity", prop->numDevices, prop->size, option);
}

EXPORT cuLogicalEndpointIdReserve(CUlogicalEndpointId* first, cuuint32_t count) {
  *first = 0xffff0000u;
  return wrote("reserve", count);
}
EXPORT cuLogicalEndpointIdRelease(CUlogicalEndpointId first, cuuint32_t count) {
  return wrote("release", first, count);
}
EXPORT cuLogicalEndpointCreate(CUlogicalEndpointId id, const CUlogicalEndpointProp* prop) {
  return wrote("create", id, prop->type, prop->unicast.device, prop->size);
}
EXPORT cuLogicalEndpointAddDevice(CUlogicalEndpointId id, CUdevice device) {
  return wrote("add", id, device);
}
EXPORT cuLogicalEndpointDestroy(CUlogicalEndpointId id) {
  return wrote("destroy", id);
}
EXPORT cuLogicalEndpointBindAddr(CUlogicalEndpointId id, CUdevice device, cuuint64_t at, void* from,
                                 cuuint64_t size, unsigned long long flags) {
  return wrote("bind_address", id, device, at, reinterpret_cast<std::uintptr_t>(from), size, flags);
}
EXPORT cuLogicalEndpointBindMem(CUlogicalEndpointId id, CUdevice device, cuuint64_t at,
                                CUmemGenericAllocationHandle memory, cuuint64_t from, cuuint64_t size,
                                unsigned long long flags) {
  return wrote("bind", id, device, at, memory, from, size, flags);
}
EXPORT cuLogicalEndpointUnbind(CUlogicalEndpointId id, CUdevice device, cuuint64_t at, cuuint64_t size) {
  return wrote("unbind", id, device, at, size);
}
EXPORT cuLogicalEndpointQuery(CUlogicalEndpointId id, cuuint32_t count, int* status) {
  *status = 1;
  return wrote("query", id, count);
}
EXPORT cuLogicalEndpointGetLimits(cuuint64_t* alignment, cuuint64_t* most,
                                  const CUlogicalEndpointProp* prop) {
  *alignment = 4096;
  *most = std::uint64_t{1} << 40;
  return wrote("limits", prop->type, prop->size);
}

EXPORT cuDeviceGetCliqueInfo(CUcliqueInfo* out, size_t* count, CUdevice device) {
  const std::size_t room = *count;
  *count = 1;
  if (room == 0) return CUDA_ERROR_INVALID_VALUE;
  out[0] = {CU_CLIQUE_TYPE_MULTICAST_POINTER, 77};
  return wrote("cliques", room, device);
}
EXPORT cuDeviceGetLuid(char* luid, unsigned* mask, CUdevice) {
  for (int n = 0; n < 8; ++n) luid[n] = static_cast<char>('a' + n);
  *mask = 5;
  return CUDA_SUCCESS;
}
EXPORT cuLibraryGetManaged(CUdeviceptr* address, size_t* size, CUlibrary, const char* name) {
  if (std::string(name) != "managed") return CUDA_ERROR_NOT_FOUND;
  *address = 0x1234000;
  *size = 4096;
  return CUDA_SUCCESS;
}
