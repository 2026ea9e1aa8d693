// What a pointer is, answered from the allocation map.
#include <cuda.h>

#include <cstring>
#include <optional>

#include "client/call/call.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/copy.h"
#include "client/memory/device_memory.h"
#include "client/memory/exported_objects.h"
#include "client/memory/host_memory.h"
#include "client/memory/host_mirrors.h"
#include "client/memory/opened_memory.h"
#include "client/memory/virtual_memory.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

struct Answer {
  CUresult result;
  std::uint64_t value = 0;
  std::size_t size = 0;
};

std::uint64_t primary_of(int device) {
  return wire::Handle{wire::Kind::context, 0, static_cast<std::uint32_t>(device)}.value();
}

Answer device_attribute(CUpointer_attribute attribute, const DeviceMemory::Found& found, CUdeviceptr ptr) {
  const auto coherent = coherent_memory().find(ptr);
  const bool managed = coherent && coherent->kind == CoherentMemory::Kind::managed;
  const auto owner = wire::Handle::from(found.block.owner).kind;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return {CUDA_SUCCESS, owner == wire::Kind::context ? found.block.owner : primary_of(found.device),
              sizeof(void*)};
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return {CUDA_SUCCESS, owner == wire::Kind::memory_pool ? found.block.owner : 0, sizeof(CUmemoryPool)};
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return {CUDA_SUCCESS, CU_MEM_HANDLE_TYPE_NONE, sizeof(std::uint64_t)};
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return {CUDA_SUCCESS, 0, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return {CUDA_SUCCESS, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return {CUDA_SUCCESS, found.block.size, sizeof(std::size_t)};
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return {CUDA_SUCCESS, found.block.address, sizeof(CUdeviceptr)};
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return {CUDA_SUCCESS, CU_MEMORYTYPE_DEVICE, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return {CUDA_SUCCESS, ptr, sizeof(CUdeviceptr)};
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return {managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, managed ? ptr : 0, sizeof(void*)};
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return {CUDA_SUCCESS, 0, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return {CUDA_SUCCESS, found.block.address, sizeof(std::uint64_t)};
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return {CUDA_SUCCESS, managed ? 1u : 0u, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return {CUDA_SUCCESS, static_cast<std::uint64_t>(found.device), sizeof(int)};
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return {CUDA_SUCCESS, can_be_exported(found) ? 1u : 0u, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return {CUDA_SUCCESS, found.block.address, sizeof(CUdeviceptr)};
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return {CUDA_SUCCESS, found.block.requested, sizeof(std::size_t)};
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return {CUDA_SUCCESS, 1, sizeof(unsigned)};
    default:
      return {attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
                      attribute <= CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL
                  ? CUDA_ERROR_NOT_SUPPORTED
                  : CUDA_ERROR_INVALID_VALUE,
              0, 0};
  }
}

Answer mapping_attribute(CUpointer_attribute attribute, const VirtualMemory::Found& found, CUdeviceptr ptr) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return {CUDA_SUCCESS, 0, sizeof(void*)};  // it belongs to no context
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return {CUDA_SUCCESS, found.reservation, sizeof(CUdeviceptr)};
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return {CUDA_SUCCESS, found.reservation_size, sizeof(std::size_t)};
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return {CUDA_SUCCESS, found.memory, sizeof(std::uint64_t)};
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return {CUDA_SUCCESS,
              found.access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                  ? static_cast<std::uint64_t>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE)
              : found.access == CU_MEM_ACCESS_FLAGS_PROT_READ
                  ? static_cast<std::uint64_t>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ)
                  : static_cast<std::uint64_t>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE),
              sizeof(unsigned)};
    default:
      return device_attribute(
          attribute, {found.device, {found.mapping, found.mapping_size, found.mapping_size, 0}}, ptr);
  }
}

/// `ptr` is the host's address; `on_device` the device's, if it has one.
Answer host_attribute(CUpointer_attribute attribute, const HostMemory::Region& region, CUdeviceptr ptr,
                      std::optional<CUdeviceptr> on_device) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return {CUDA_SUCCESS, primary_of(0), sizeof(void*)};
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return {CUDA_SUCCESS, CU_MEMORYTYPE_HOST, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return {on_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, on_device.value_or(0),
              sizeof(CUdeviceptr)};
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return {CUDA_SUCCESS, 0, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return {CUDA_SUCCESS, ptr, sizeof(void*)};
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return {CUDA_SUCCESS, 0, sizeof(int)};
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return {CUDA_SUCCESS, region.address, sizeof(CUdeviceptr)};
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return {CUDA_SUCCESS, region.size, sizeof(std::size_t)};
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return {CUDA_SUCCESS, 0, sizeof(unsigned)};
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return {CUDA_SUCCESS, region.address, sizeof(std::uint64_t)};
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return {CUDA_SUCCESS, 1, sizeof(unsigned)};
    default:
      return {CUDA_ERROR_INVALID_VALUE, 0, 0};
  }
}

Answer answer(CUpointer_attribute attribute, CUdeviceptr ptr) {
  // Memory for both sides is host memory where it was asked for as such.
  if (const auto region = host_memory().find(reinterpret_cast<void*>(ptr))) {
    std::optional<CUdeviceptr> on_device;
    if (region->coherent) {
      on_device = ptr;
    } else if (const auto mirror = host_mirrors().address_of(region->address)) {
      on_device = *mirror + (ptr - region->address);
    }
    return host_attribute(attribute, *region, ptr, on_device);
  }
  if (const auto mirrored = host_mirrors().behind(ptr))
    return host_attribute(attribute, mirrored->region, mirrored->region.address + mirrored->offset, ptr);
  if (const auto found = device_memory().find(ptr)) return device_attribute(attribute, *found, ptr);
  if (const auto opened = opened_memory().find(ptr)) {
    const std::uint64_t owner = opened->pool != 0 ? opened->pool : opened->context;
    return device_attribute(attribute, {opened->device, {opened->address, opened->size, opened->size, owner}},
                            ptr);
  }
  // XLA copies from its constants, and asks first which device has them.
  if (const auto global = global_at(ptr))
    return device_attribute(attribute, {global->device, {global->address, global->size, global->size, 0}},
                            ptr);
  if (const auto found = virtual_memory().find(ptr)) return mapping_attribute(attribute, *found, ptr);
  return {CUDA_ERROR_INVALID_VALUE, 0, 0};
}

std::size_t size_of(CUpointer_attribute attribute) {
  return device_attribute(attribute, DeviceMemory::Found{}, 0).size;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Answer found = answer(attribute, ptr);
  if (found.result == CUDA_SUCCESS) std::memcpy(data, &found.value, found.size);
  return found.result;
}

// Unlike the single form this one succeeds for a pointer that CUDA does not know, and gives zeros.
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (numAttributes == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned n = 0; n < numAttributes; ++n) {
    Answer found = answer(attributes[n], ptr);
    if (found.result != CUDA_SUCCESS) {
      found.value = attributes[n] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? static_cast<std::uint64_t>(-2) : 0;
      found.size = size_of(attributes[n]);
    }
    if (data[n] != nullptr) std::memcpy(data[n], &found.value, found.size);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr || !device_memory().find(ptr)) return CUDA_ERROR_INVALID_VALUE;
  // Synchronous copies always are: there is nothing to switch on.
  return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace gpupool::client::api
