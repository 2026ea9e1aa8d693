// Devices, answered from the device profile.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "client/call/call.h"
#include "client/memory/device_memory.h"
#include "generated/client_api.h"
#include "wire/elements.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

/// The device's description, kept alive by the pointer.
struct Found {
  std::shared_ptr<const DeviceProfile> profile;
  const DeviceDescription* device = nullptr;
};

CUresult find(CUdevice ordinal, Found& out) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  out.profile = runtime().devices();
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= out.profile->devices.size())
    return CUDA_ERROR_INVALID_DEVICE;
  out.device = &out.profile->devices[static_cast<std::size_t>(ordinal)];
  return CUDA_SUCCESS;
}

int attribute(const DeviceDescription& device, int id) {
  const auto found = device.attributes.find(id);
  return found == device.attributes.end() ? 0 : found->second;
}

/// What the driver offers but this runtime does not (yet): a program that asks must be told no.
bool withheld(int id) {
  switch (id) {
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    // A kernel cannot use all page-locked memory, nor see what the host writes while it runs. XLA measures
    // kernels behind one that waits for such a word, unless it is told so.
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    // No other device of the client's machine reaches this one's memory, and no fabric does.
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    // What cuMemCreate makes lies on a device.
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_D3D12_CIG_STREAMS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
    case CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_SUPPORTED_HANDLE_TYPES:
      return true;
    default:
      return false;
  }
}

/// What this runtime does by itself, whatever the driver can do.
bool given(int id) {
  return id == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY || id == CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuDeviceGetCount(int* count) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(runtime().devices()->devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  runtime().begin_if_over();
  Found found;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = find(ordinal, found); bad != CUDA_SUCCESS) return bad;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t size = std::min(found.device->name.size(), static_cast<std::size_t>(len) - 1);
  std::memcpy(name, found.device->name.data(), size);
  name[size] = '\0';
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memset(uuid, 0, sizeof(*uuid));
  for (std::size_t n = 0; n < sizeof(uuid->bytes) && 2 * n + 1 < found.device->uuid.size(); ++n) {
    uuid->bytes[n] = static_cast<char>(std::stoi(found.device->uuid.substr(2 * n, 2), nullptr, 16));
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t free = 0, total = found.device->total_mib << 20;
  if (runtime().connected()) static_cast<void>(device_memory().info(dev, free, total));
  *bytes = total;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (pi == nullptr || attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  const auto value = found.device->attributes.find(attrib);
  if (value == found.device->attributes.end()) return CUDA_ERROR_INVALID_VALUE;
  *pi = withheld(attrib) ? 0 : given(attrib) ? 1 : value->second;
  if (attrib == CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) {
    // Pools are this runtime's own: their memory can be given away where that of cuMemCreate can.
    const bool able =
        attribute(*found.device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
    *pi = able ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = attribute(*found.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = attribute(*found.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto get = [&](CUdevice_attribute id) { return attribute(*found.device, id); };
  *prop = {};
  prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  prop->maxThreadsDim[0] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  prop->maxThreadsDim[1] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  prop->maxThreadsDim[2] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  prop->maxGridSize[0] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  prop->maxGridSize[1] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  prop->maxGridSize[2] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  prop->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  prop->totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  prop->SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  prop->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  prop->clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  prop->textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (pciBusId == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t size = std::min(found.device->pci.size(), static_cast<std::size_t>(len) - 1);
  std::memcpy(pciBusId, found.device->pci.data(), size);
  pciBusId[size] = '\0';
  return CUDA_SUCCESS;
}

namespace {

/// Domain, bus, device and function of `[domain]:[bus]:[device].[function]`, `[domain]:[bus]:[device]` or
/// `[bus]:[device].[function]`, which CUDA takes all three.
std::optional<std::array<unsigned, 4>> parse_bus_id(const char* text) {
  std::array<unsigned, 4> id{};
  int end = 0;
  if (std::sscanf(text, "%8x:%4x:%4x.%2x%n", &id[0], &id[1], &id[2], &id[3], &end) == 4 && text[end] == '\0')
    return id;
  id = {};
  if (std::sscanf(text, "%8x:%4x:%4x%n", &id[0], &id[1], &id[2], &end) == 3 && text[end] == '\0') return id;
  id = {};
  if (std::sscanf(text, "%4x:%4x.%2x%n", &id[1], &id[2], &id[3], &end) == 3 && text[end] == '\0') return id;
  return std::nullopt;
}

}  // namespace

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wanted = parse_bus_id(pciBusId);
  if (!wanted) return CUDA_ERROR_INVALID_VALUE;
  const auto profile = runtime().devices();
  for (const auto& device : profile->devices) {
    if (parse_bus_id(device.pci.c_str()) == wanted) {
      *dev = device.ordinal;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  Found found;
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = find(peerDev, found); bad != CUDA_SUCCESS) return bad;
  *canAccessPeer = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (srcDevice == dstDevice) return CUDA_ERROR_INVALID_DEVICE;
  if (attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
      attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return api::cuDeviceCanAccessPeer(value, srcDevice, dstDevice);
}

CUresult cuDeviceGetCliqueInfo(CUcliqueInfo* cliqueInfo, size_t* count, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (count == nullptr || (cliqueInfo == nullptr && *count != 0)) return CUDA_ERROR_INVALID_VALUE;
  messages::CliqueInfo m;
  m.device = dev;
  m.count = std::min<std::size_t>(*count, wire::max_array_bytes / sizeof(CUcliqueInfo));
  replies::CliqueInfo reply;
  std::vector<std::byte> bytes;
  if (const CUresult bad = ask(m, reply, any_context, bytes); bad != CUDA_SUCCESS) return bad;
  const std::size_t filled = reply.cliques.size() / sizeof(CUcliqueInfo);
  if (reply.cliques.size() % sizeof(CUcliqueInfo) != 0 || filled > m.count) return CUDA_ERROR_UNKNOWN;
  if (filled != 0) std::memcpy(cliqueInfo, reply.cliques.data(), reply.cliques.size());
  *count = filled;
  return CUDA_SUCCESS;
}

// Atomics between the device and the host's memory: the program's memory is in another machine.
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                           unsigned int count, CUdevice dev) {
  Found found;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  if (capabilities == nullptr || operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::fill_n(capabilities, count, 0u);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                          unsigned int count, CUdevice srcDevice, CUdevice dstDevice) {
  Found found;
  if (const CUresult bad = find(srcDevice, found); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = find(dstDevice, found); bad != CUDA_SUCCESS) return bad;
  if (srcDevice == dstDevice) return CUDA_ERROR_INVALID_DEVICE;
  if (capabilities == nullptr || operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::fill_n(capabilities, count, 0u);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  Found found;
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = find(dev, found); bad != CUDA_SUCCESS) return bad;
  *pi = 0;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
