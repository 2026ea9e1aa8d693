// Initialisation, version, and devices.
#include <cctype>
#include <cstdio>
#include <cstring>

#include "base/mutex.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/device/memory_pool.h"
#include "softgpu/driver/stream/context.h"

using namespace softgpu::driver;

CUresult cuInit(unsigned int Flags) {
  return entry_any_time([&] {
    require(Flags == 0);
    Driver::get().initialise();
  });
}

CUresult cuDriverGetVersion(int* driverVersion) {
  return entry_any_time([&] {
    require(driverVersion != nullptr);
    *driverVersion = CUDA_VERSION;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return entry([&] {
    require(device != nullptr);
    *device = Driver::get().device(ordinal).ordinal();
  });
}

CUresult cuDeviceGetCount(int* count) {
  return entry([&] {
    require(count != nullptr);
    *count = static_cast<int>(Driver::get().devices().size());
  });
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return entry([&] {
    require(name != nullptr && len > 0);
    std::snprintf(name, static_cast<std::size_t>(len), "%s", Driver::get().device(dev).name());
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return entry([&] {
    require(uuid != nullptr);
    *uuid = Driver::get().device(dev).uuid();
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return entry([&] {
    require(bytes != nullptr);
    *bytes = Driver::get().device(dev).total_memory();
  });
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return entry([&] {
    require(pi != nullptr);
    *pi = Driver::get().device(dev).attribute(attrib);
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return entry([&] {
    require(major && minor);
    *major = Driver::get().device(dev).capability_major();
    *minor = Driver::get().device(dev).capability_minor();
  });
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  return entry([&] {
    require(prop != nullptr);
    const Device& device = Driver::get().device(dev);
    const auto value = [&](CUdevice_attribute id) { return device.attribute(id); };
    *prop = {};
    prop->maxThreadsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    prop->maxThreadsDim[0] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
    prop->maxThreadsDim[1] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
    prop->maxThreadsDim[2] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
    prop->maxGridSize[0] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
    prop->maxGridSize[1] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
    prop->maxGridSize[2] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
    prop->sharedMemPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    prop->totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    prop->SIMDWidth = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    prop->memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    prop->regsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    prop->clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    prop->textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  });
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return entry([&] {
    require(pciBusId != nullptr && len > 0);
    std::snprintf(pciBusId, static_cast<std::size_t>(len), "%s",
                  Driver::get().device(dev).pci_bus_id().c_str());
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  return entry([&] {
    require(dev && pciBusId);
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    // [domain]:[bus]:[device].[function], [domain]:[bus]:[device] or [bus]:[device].[function]
    if (std::sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
      domain = 0;
      require(std::sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) == 3);
    }
    for (const auto& device : Driver::get().devices()) {
      if (domain == 0 && slot == 0 && bus == static_cast<unsigned>(device->pci_bus())) {
        *dev = device->ordinal();
        return;
      }
    }
    fail(CUDA_ERROR_INVALID_DEVICE);
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  return entry([&] {
    require(pool_out != nullptr);
    *pool_out = reinterpret_cast<CUmemoryPool>(Driver::get().device(dev).shared_default_pool().get());
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  return entry([&] {
    require(pool != nullptr);
    Device& device = Driver::get().device(dev);
    const gpupool::MutexLock lock(device.pool_mutex);
    *pool = reinterpret_cast<CUmemoryPool>(device.current_pool.get());
  });
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  return entry([&] {
    Device& device = Driver::get().device(dev);
    auto chosen = registry<MemoryPool>().get(pool, CUDA_ERROR_INVALID_VALUE);
    require(&chosen->device() == &device);
    const gpupool::MutexLock lock(device.pool_mutex);
    device.current_pool = std::move(chosen);
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  return entry([&] {
    require(pi != nullptr);
    Driver::get().device(dev);
    *pi = 0;
  });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format, unsigned,
                                            CUdevice dev) {
  return entry([&] {
    require(maxWidthInElements != nullptr);
    Driver::get().device(dev);
    *maxWidthInElements = 0;
  });
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  return entry([&] {
    require(canAccessPeer != nullptr);
    // All software devices live in one address space.
    *canAccessPeer = Driver::get().device(dev).ordinal() != Driver::get().device(peerDev).ordinal();
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  return entry([&] {
    require(value != nullptr);
    require(Driver::get().device(srcDevice).ordinal() != Driver::get().device(dstDevice).ordinal(),
            CUDA_ERROR_INVALID_DEVICE);
    switch (attrib) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        return;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        return;
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 0;
        return;
      default:
        fail(CUDA_ERROR_INVALID_VALUE);
    }
  });
}
