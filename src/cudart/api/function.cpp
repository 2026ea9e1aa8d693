// Attributes of kernels, and kernels as handles.
#include "cudart/call.h"
#include "cudart/registry.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

/// Reads a kernel's attributes on one device; keeps the first failure.
class KernelAttributes {
 public:
  KernelAttributes(CUkernel kernel, CUdevice device) : kernel_(kernel), device_(device) {}
  int operator[](CUfunction_attribute attribute) {
    int value = 0;
    const CUresult result = driver().cuKernelGetAttribute(&value, attribute, kernel_, device_);
    // Newer attributes may be unknown to a driver; those every driver has stand first.
    if (result != CUDA_SUCCESS && failure_ == CUDA_SUCCESS && attribute <= CU_FUNC_ATTRIBUTE_BINARY_VERSION)
      failure_ = result;
    return result == CUDA_SUCCESS ? value : 0;
  }
  CUresult failure() const { return failure_; }

 private:
  CUkernel kernel_;
  CUdevice device_;
  CUresult failure_ = CUDA_SUCCESS;
};

cudaError_t kernel_and_device(const void* func, CUkernel& kernel, CUdevice& device) {
  if (const cudaError_t bad = kernel_handle(func, kernel); bad != cudaSuccess) return bad;
  return current_device(device);
}

}  // namespace

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attr, const void* func) {
  if (attr == nullptr) return cudaErrorInvalidValue;
  CUkernel kernel = nullptr;
  CUdevice device = 0;
  if (const cudaError_t bad = kernel_and_device(func, kernel, device); bad != cudaSuccess) return bad;
  KernelAttributes get(kernel, device);
  const auto size = [&](CUfunction_attribute id) { return static_cast<size_t>(get[id]); };
  *attr = {};
  attr->sharedSizeBytes = size(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  attr->constSizeBytes = size(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
  attr->localSizeBytes = size(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  attr->maxThreadsPerBlock = get[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  attr->numRegs = get[CU_FUNC_ATTRIBUTE_NUM_REGS];
  attr->ptxVersion = get[CU_FUNC_ATTRIBUTE_PTX_VERSION];
  attr->binaryVersion = get[CU_FUNC_ATTRIBUTE_BINARY_VERSION];
  attr->cacheModeCA = get[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA];
  attr->maxDynamicSharedSizeBytes = get[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  attr->preferredShmemCarveout = get[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT];
  attr->clusterDimMustBeSet = get[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET];
  attr->requiredClusterWidth = get[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
  attr->requiredClusterHeight = get[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT];
  attr->requiredClusterDepth = get[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH];
  attr->clusterSchedulingPolicyPreference = get[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE];
  attr->nonPortableClusterSizeAllowed = get[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED];
  return translate(get.failure());
}

cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attr, int value) {
  CUkernel kernel = nullptr;
  CUdevice device = 0;
  if (const cudaError_t bad = kernel_and_device(func, kernel, device); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attr), value, kernel, device);
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* func, cudaFuncCache cacheConfig) {
  CUkernel kernel = nullptr;
  CUdevice device = 0;
  if (const cudaError_t bad = kernel_and_device(func, kernel, device); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(cacheConfig), device);
  });
}

cudaError_t cudaFuncSetSharedMemConfig(const void* func, cudaSharedMemConfig) {
  // Banks have had one width since compute capability 5.0; only the function is checked.
  CUkernel kernel = nullptr;
  return kernel_handle(func, kernel);
}

cudaError_t cudaFuncGetName(const char** name, const void* func) {
  if (name == nullptr) return cudaErrorInvalidValue;
  if (const Kernel* const registered = find_kernel(func)) {
    *name = registered->name;
    return cudaSuccess;
  }
  CUkernel kernel = nullptr;
  if (const cudaError_t bad = kernel_handle(func, kernel); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuKernelGetName(name, kernel); });
}

cudaError_t cudaFuncGetParamInfo(const void* func, size_t paramIndex, size_t* paramOffset,
                                 size_t* paramSize) {
  CUkernel kernel = nullptr;
  if (const cudaError_t bad = kernel_handle(func, kernel); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuKernelGetParamInfo(kernel, paramIndex, paramOffset, paramSize);
  });
}

#if CUDART_VERSION >= 13010
cudaError_t cudaFuncGetParamCount(const void* func, size_t* paramCount) {
  if (paramCount == nullptr) return cudaErrorInvalidValue;
  CUkernel kernel = nullptr;
  if (const cudaError_t bad = kernel_handle(func, kernel); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuKernelGetParamCount(kernel, paramCount); });
}
#endif

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* functionPtr, const void* symbolPtr) {
  if (functionPtr == nullptr) return cudaErrorInvalidValue;
  CUkernel kernel = nullptr;
  if (const cudaError_t bad = kernel_handle(symbolPtr, kernel); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) {
    return d.cuKernelGetFunction(reinterpret_cast<CUfunction*>(functionPtr), kernel);
  });
}

cudaError_t cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr) {
  if (kernelPtr == nullptr) return cudaErrorInvalidValue;
  return kernel_handle(entryFuncAddr, *reinterpret_cast<CUkernel*>(kernelPtr));
}

}  // namespace gpupool::cudart
