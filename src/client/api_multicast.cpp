// Multicast objects are made here and kept in the books of virtual memory, because they are mapped and
// released as physical memory is. All else about them is the driver's answer.
#include <cuda.h>

#include "client/call.h"
#include "client/export.h"
#include "client/virtual_memory.h"

using namespace gpupool::client;

extern "C" GPUPOOL_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle* mcHandle,
                                                     const CUmulticastObjectProp* prop) try {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (mcHandle == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  std::uint64_t made = 0;
  const CUresult result = virtual_memory().create_multicast(*prop, made);
  if (result == CUDA_SUCCESS) *mcHandle = made;
  return result;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}
