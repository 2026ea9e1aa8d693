#include "cudart/device_properties.h"

#include <cstring>

#include "cudart/call.h"

namespace gpupool::cudart {

namespace {

/// Reads attributes of one device; what the driver does not know is 0.
class Attributes {
 public:
  explicit Attributes(int device) : device_(device) {}
  int operator[](int attribute) const {
    int value = 0;
    const CUresult result =
        driver().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device_);
    return result == CUDA_SUCCESS ? value : 0;
  }
  std::size_t size(int attribute) const { return static_cast<std::size_t>((*this)[attribute]); }

 private:
  int device_;
};

void fill_limits(cudaDeviceProp& p, const Attributes& get) {
  p.sharedMemPerBlock = get.size(cudaDevAttrMaxSharedMemoryPerBlock);
  p.regsPerBlock = get[cudaDevAttrMaxRegistersPerBlock];
  p.warpSize = get[cudaDevAttrWarpSize];
  p.memPitch = get.size(cudaDevAttrMaxPitch);
  p.maxThreadsPerBlock = get[cudaDevAttrMaxThreadsPerBlock];
  for (int n = 0; n < 3; ++n) {
    p.maxThreadsDim[n] = get[cudaDevAttrMaxBlockDimX + n];
    p.maxGridSize[n] = get[cudaDevAttrMaxGridDimX + n];
  }
  p.totalConstMem = get.size(cudaDevAttrTotalConstantMemory);
  p.major = get[cudaDevAttrComputeCapabilityMajor];
  p.minor = get[cudaDevAttrComputeCapabilityMinor];
  p.multiProcessorCount = get[cudaDevAttrMultiProcessorCount];
  p.maxThreadsPerMultiProcessor = get[cudaDevAttrMaxThreadsPerMultiProcessor];
  p.maxBlocksPerMultiProcessor = get[cudaDevAttrMaxBlocksPerMultiprocessor];
  p.sharedMemPerMultiprocessor = get.size(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  p.regsPerMultiprocessor = get[cudaDevAttrMaxRegistersPerMultiprocessor];
  p.sharedMemPerBlockOptin = get.size(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  p.reservedSharedMemPerBlock = get.size(cudaDevAttrReservedSharedMemoryPerBlock);
}

void fill_textures(cudaDeviceProp& p, const Attributes& get) {
  p.textureAlignment = get.size(cudaDevAttrTextureAlignment);
  p.texturePitchAlignment = get.size(cudaDevAttrTexturePitchAlignment);
  p.surfaceAlignment = get.size(cudaDevAttrSurfaceAlignment);
  p.maxTexture1D = get[cudaDevAttrMaxTexture1DWidth];
  p.maxTexture1DMipmap = get[cudaDevAttrMaxTexture1DMipmappedWidth];
  p.maxTexture2D[0] = get[cudaDevAttrMaxTexture2DWidth];
  p.maxTexture2D[1] = get[cudaDevAttrMaxTexture2DHeight];
  p.maxTexture2DMipmap[0] = get[cudaDevAttrMaxTexture2DMipmappedWidth];
  p.maxTexture2DMipmap[1] = get[cudaDevAttrMaxTexture2DMipmappedHeight];
  p.maxTexture2DLinear[0] = get[cudaDevAttrMaxTexture2DLinearWidth];
  p.maxTexture2DLinear[1] = get[cudaDevAttrMaxTexture2DLinearHeight];
  p.maxTexture2DLinear[2] = get[cudaDevAttrMaxTexture2DLinearPitch];
  p.maxTexture2DGather[0] = get[cudaDevAttrMaxTexture2DGatherWidth];
  p.maxTexture2DGather[1] = get[cudaDevAttrMaxTexture2DGatherHeight];
  p.maxTexture3D[0] = get[cudaDevAttrMaxTexture3DWidth];
  p.maxTexture3D[1] = get[cudaDevAttrMaxTexture3DHeight];
  p.maxTexture3D[2] = get[cudaDevAttrMaxTexture3DDepth];
  p.maxTexture3DAlt[0] = get[cudaDevAttrMaxTexture3DWidthAlt];
  p.maxTexture3DAlt[1] = get[cudaDevAttrMaxTexture3DHeightAlt];
  p.maxTexture3DAlt[2] = get[cudaDevAttrMaxTexture3DDepthAlt];
  p.maxTextureCubemap = get[cudaDevAttrMaxTextureCubemapWidth];
  p.maxTexture1DLayered[0] = get[cudaDevAttrMaxTexture1DLayeredWidth];
  p.maxTexture1DLayered[1] = get[cudaDevAttrMaxTexture1DLayeredLayers];
  p.maxTexture2DLayered[0] = get[cudaDevAttrMaxTexture2DLayeredWidth];
  p.maxTexture2DLayered[1] = get[cudaDevAttrMaxTexture2DLayeredHeight];
  p.maxTexture2DLayered[2] = get[cudaDevAttrMaxTexture2DLayeredLayers];
  p.maxTextureCubemapLayered[0] = get[cudaDevAttrMaxTextureCubemapLayeredWidth];
  p.maxTextureCubemapLayered[1] = get[cudaDevAttrMaxTextureCubemapLayeredLayers];
  p.maxSurface1D = get[cudaDevAttrMaxSurface1DWidth];
  p.maxSurface2D[0] = get[cudaDevAttrMaxSurface2DWidth];
  p.maxSurface2D[1] = get[cudaDevAttrMaxSurface2DHeight];
  p.maxSurface3D[0] = get[cudaDevAttrMaxSurface3DWidth];
  p.maxSurface3D[1] = get[cudaDevAttrMaxSurface3DHeight];
  p.maxSurface3D[2] = get[cudaDevAttrMaxSurface3DDepth];
  p.maxSurface1DLayered[0] = get[cudaDevAttrMaxSurface1DLayeredWidth];
  p.maxSurface1DLayered[1] = get[cudaDevAttrMaxSurface1DLayeredLayers];
  p.maxSurface2DLayered[0] = get[cudaDevAttrMaxSurface2DLayeredWidth];
  p.maxSurface2DLayered[1] = get[cudaDevAttrMaxSurface2DLayeredHeight];
  p.maxSurface2DLayered[2] = get[cudaDevAttrMaxSurface2DLayeredLayers];
  p.maxSurfaceCubemap = get[cudaDevAttrMaxSurfaceCubemapWidth];
  p.maxSurfaceCubemapLayered[0] = get[cudaDevAttrMaxSurfaceCubemapLayeredWidth];
  p.maxSurfaceCubemapLayered[1] = get[cudaDevAttrMaxSurfaceCubemapLayeredLayers];
}

void fill_abilities(cudaDeviceProp& p, const Attributes& get) {
  p.integrated = get[cudaDevAttrIntegrated];
  p.canMapHostMemory = get[cudaDevAttrCanMapHostMemory];
  p.concurrentKernels = get[cudaDevAttrConcurrentKernels];
  p.ECCEnabled = get[cudaDevAttrEccEnabled];
  p.pciBusID = get[cudaDevAttrPciBusId];
  p.pciDeviceID = get[cudaDevAttrPciDeviceId];
  p.pciDomainID = get[cudaDevAttrPciDomainId];
  p.tccDriver = get[cudaDevAttrTccDriver];
  p.asyncEngineCount = get[cudaDevAttrAsyncEngineCount];
  p.unifiedAddressing = get[cudaDevAttrUnifiedAddressing];
  p.memoryBusWidth = get[cudaDevAttrGlobalMemoryBusWidth];
  p.l2CacheSize = get[cudaDevAttrL2CacheSize];
  p.persistingL2CacheMaxSize = get[cudaDevAttrMaxPersistingL2CacheSize];
  p.accessPolicyMaxWindowSize = get[cudaDevAttrMaxAccessPolicyWindowSize];
  p.streamPrioritiesSupported = get[cudaDevAttrStreamPrioritiesSupported];
  p.globalL1CacheSupported = get[cudaDevAttrGlobalL1CacheSupported];
  p.localL1CacheSupported = get[cudaDevAttrLocalL1CacheSupported];
  p.managedMemory = get[cudaDevAttrManagedMemory];
  p.isMultiGpuBoard = get[cudaDevAttrIsMultiGpuBoard];
  p.multiGpuBoardGroupID = get[cudaDevAttrMultiGpuBoardGroupID];
  p.hostNativeAtomicSupported = get[cudaDevAttrHostNativeAtomicSupported];
  p.pageableMemoryAccess = get[cudaDevAttrPageableMemoryAccess];
  p.concurrentManagedAccess = get[cudaDevAttrConcurrentManagedAccess];
  p.computePreemptionSupported = get[cudaDevAttrComputePreemptionSupported];
  p.canUseHostPointerForRegisteredMem = get[cudaDevAttrCanUseHostPointerForRegisteredMem];
  p.cooperativeLaunch = get[cudaDevAttrCooperativeLaunch];
  p.pageableMemoryAccessUsesHostPageTables = get[cudaDevAttrPageableMemoryAccessUsesHostPageTables];
  p.directManagedMemAccessFromHost = get[cudaDevAttrDirectManagedMemAccessFromHost];
  p.hostRegisterSupported = get[cudaDevAttrHostRegisterSupported];
  p.sparseCudaArraySupported = get[cudaDevAttrSparseCudaArraySupported];
  p.hostRegisterReadOnlySupported = get[cudaDevAttrHostRegisterReadOnlySupported];
  p.timelineSemaphoreInteropSupported = get[cudaDevAttrTimelineSemaphoreInteropSupported];
  p.memoryPoolsSupported = get[cudaDevAttrMemoryPoolsSupported];
  p.gpuDirectRDMASupported = get[cudaDevAttrGPUDirectRDMASupported];
  p.gpuDirectRDMAFlushWritesOptions = static_cast<unsigned>(get[cudaDevAttrGPUDirectRDMAFlushWritesOptions]);
  p.gpuDirectRDMAWritesOrdering = get[cudaDevAttrGPUDirectRDMAWritesOrdering];
  p.memoryPoolSupportedHandleTypes = static_cast<unsigned>(get[cudaDevAttrMemoryPoolSupportedHandleTypes]);
  p.deferredMappingCudaArraySupported = get[cudaDevAttrDeferredMappingCudaArraySupported];
  p.ipcEventSupported = get[cudaDevAttrIpcEventSupport];
  p.clusterLaunch = get[cudaDevAttrClusterLaunch];
  p.unifiedFunctionPointers = get[CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS];
}

void fill_version_specific(cudaDeviceProp& p, const Attributes& get) {
#if CUDART_VERSION < 13000
  p.clockRate = get[cudaDevAttrClockRate];
  p.deviceOverlap = get[cudaDevAttrGpuOverlap];
  p.kernelExecTimeoutEnabled = get[cudaDevAttrKernelExecTimeout];
  p.computeMode = get[cudaDevAttrComputeMode];
  p.maxTexture1DLinear = get[cudaDevAttrMaxTexture1DLinearWidth];
  p.memoryClockRate = get[cudaDevAttrMemoryClockRate];
  p.singleToDoublePrecisionPerfRatio = get[cudaDevAttrSingleToDoublePrecisionPerfRatio];
  p.cooperativeMultiDeviceLaunch = get[cudaDevAttrCooperativeMultiDeviceLaunch];
#else
  p.deviceNumaConfig = get[CU_DEVICE_ATTRIBUTE_NUMA_CONFIG];
  p.deviceNumaId = get[CU_DEVICE_ATTRIBUTE_NUMA_ID];
  p.mpsEnabled = get[CU_DEVICE_ATTRIBUTE_MPS_ENABLED];
  p.hostNumaId = get[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID];
  p.gpuPciDeviceID = static_cast<unsigned>(get[CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID]);
  p.gpuPciSubsystemID = static_cast<unsigned>(get[CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID]);
#endif
}

}  // namespace

cudaError_t device_properties(cudaDeviceProp& properties, int device) {
  std::memset(&properties, 0, sizeof(properties));
  if (const CUresult bad = driver().cuDeviceGetName(properties.name, sizeof(properties.name), device);
      bad != CUDA_SUCCESS)
    return translate(bad);
  if (const CUresult bad = driver().cuDeviceTotalMem_v2(&properties.totalGlobalMem, device);
      bad != CUDA_SUCCESS)
    return translate(bad);
  static_assert(sizeof(properties.uuid) == sizeof(CUuuid));
  driver().cuDeviceGetUuid_v2(reinterpret_cast<CUuuid*>(&properties.uuid), device);
  const Attributes get(device);
  fill_limits(properties, get);
  fill_textures(properties, get);
  fill_abilities(properties, get);
  fill_version_specific(properties, get);
  return cudaSuccess;
}

}  // namespace gpupool::cudart
