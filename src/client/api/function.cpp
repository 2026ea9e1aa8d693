// Kernels and functions: attributes are a snapshot that came with the image.
#include <cuda.h>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/images.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

CUresult get_attribute(int* pi, int attribute, std::uint64_t handle) {
  const Function* const function = find_function(handle);
  if (function == nullptr) return bad_handle(wire::Kind::function);
  if (pi == nullptr || attribute < 0 || attribute >= static_cast<int>(KernelInfo::attribute_count))
    return CUDA_ERROR_INVALID_VALUE;
  if ((function->info->answered >> attribute & 1u) == 0) return CUDA_ERROR_INVALID_VALUE;
  *pi = function->info->attributes[static_cast<std::size_t>(attribute)];
  return CUDA_SUCCESS;
}

/// The context that stands for a device: the current one, if it is on it.
std::uint64_t context_on_device(CUdevice device) {
  const std::uint64_t context = current_context();
  return context != 0 && device_of_context(context) == device ? context : primary_context(device);
}

/// In `context`: a kernel has its attributes on each device.
CUresult set_attribute(int attribute, int value, std::uint64_t handle, std::uint64_t context) {
  Function* const function = find_function(handle);
  if (function == nullptr) return bad_handle(wire::Kind::function);
  const bool settable = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                        (attribute >= CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
                         attribute < static_cast<int>(KernelInfo::attribute_count));
  if (!settable || attribute == CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    int most = 0;
    const int fixed = function->info->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
    if (cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                             context != 0 ? device_of_context(context) : 0) == CUDA_SUCCESS &&
        most > 0 && (value < 0 || value > most - fixed)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (const CUresult bad = set_function_attribute(*function, handle, attribute, value, context);
      bad != CUDA_SUCCESS)
    return bad;
  function->info->attributes[static_cast<std::size_t>(attribute)] = value;
  function->info->answered |= 1u << attribute;
  return CUDA_SUCCESS;
}

CUresult param_info(std::uint64_t handle, size_t index, size_t* offset, size_t* size) {
  const Function* const function = find_function(handle);
  if (function == nullptr) return bad_handle(wire::Kind::function);
  if (offset == nullptr || index >= function->info->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->info->parameters[index].offset;
  if (size != nullptr) *size = function->info->parameters[index].size;
  return CUDA_SUCCESS;
}

CUresult param_count(std::uint64_t handle, size_t* count) {
  const Function* const function = find_function(handle);
  if (function == nullptr) return bad_handle(wire::Kind::function);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = function->info->parameters.size();
  return CUDA_SUCCESS;
}

CUresult check(std::uint64_t handle) {
  return find_function(handle) != nullptr ? CUDA_SUCCESS : bad_handle(wire::Kind::function);
}

}  // namespace

namespace gpupool::client::api {

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  runtime().begin_if_over();
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t function = 0;
  const CUresult result = function_of_kernel(raw(kernel), function);
  if (result == CUDA_SUCCESS) *pFunc = handle_as<CUfunction>(function);
  return result;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  const Function* const function = tables().kernels.find(raw(kernel));
  if (function == nullptr) return bad_handle(wire::Kind::kernel);
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pLib = handle_as<CUlibrary>(function->image);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice) {
  runtime().begin_if_over();
  return get_attribute(pi, attrib, raw(kernel));
}
CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  int count = 0;
  if (const CUresult bad = cuDeviceGetCount(&count); bad != CUDA_SUCCESS) return bad;
  if (dev < 0 || dev >= count) return CUDA_ERROR_INVALID_DEVICE;
  return set_attribute(attrib, val, raw(kernel), context_on_device(dev));
}
// Cache preferences are hints; the devices of today ignore them.
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache, CUdevice) {
  return check(raw(kernel));
}
CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  const Function* const function = tables().kernels.find(raw(hfunc));
  if (function == nullptr) return bad_handle(wire::Kind::kernel);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->info->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return param_info(raw(kernel), paramIndex, paramOffset, paramSize);
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  runtime().begin_if_over();
  return get_attribute(pi, attrib, raw(hfunc));
}
CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return set_attribute(attrib, value, raw(hfunc), current_context());
}
CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache) {
  return check(raw(hfunc));
}
CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig) {
  return check(raw(hfunc));
}
CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  const Function* const function = tables().functions.find(raw(hfunc));
  if (function == nullptr) return bad_handle(wire::Kind::function);
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function->kernel != 0) return api::cuLibraryGetModule(hmod, handle_as<CUlibrary>(function->image));
  *hmod = handle_as<CUmodule>(function->image);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  const Function* const function = find_function(raw(hfunc));
  if (function == nullptr) return bad_handle(wire::Kind::function);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->info->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return param_info(raw(func), paramIndex, paramOffset, paramSize);
}
CUresult cuFuncGetParamCount(CUfunction func, size_t* paramCount) {
  return param_count(raw(func), paramCount);
}
CUresult cuKernelGetParamCount(CUkernel kernel, size_t* paramCount) {
  return param_count(raw(kernel), paramCount);
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (const CUresult bad = check(raw(function)); bad != CUDA_SUCCESS) return bad;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction function) {
  return check(raw(function));
}

}  // namespace gpupool::client::api
