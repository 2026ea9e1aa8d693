// Handles, versions and the texts of statuses. No message.
#include "libraries/cudnn/handle.h"

#include <algorithm>
#include <cstring>

using namespace gpupool::cudnn;

namespace {

/// cuDNN's, whose interface this is.
constexpr int cudnn_version[] = {9, 26, 0};

struct StatusName {
  int status;
  const char* name;
};
constexpr StatusName status_names[] = {
    {success, "CUDNN_STATUS_SUCCESS"},
    {not_initialized, "CUDNN_STATUS_NOT_INITIALIZED"},
    {1002, "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"},
    {1003, "CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH"},
    {1004, "CUDNN_STATUS_DEPRECATED"},
    {1005, "CUDNN_STATUS_LICENSE_ERROR"},
    {1006, "CUDNN_STATUS_RUNTIME_IN_PROGRESS"},
    {1007, "CUDNN_STATUS_RUNTIME_FP_OVERFLOW"},
    {1008, "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED"},
    {bad_param, "CUDNN_STATUS_BAD_PARAM"},
    {2001, "CUDNN_STATUS_INVALID_VALUE"},
    {bad_param_null_pointer, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER"},
    {2003, "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER"},
    {bad_param_not_finalized, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"},
    {bad_param_out_of_bound, "CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND"},
    {bad_param_size_insufficient, "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT"},
    {2007, "CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH"},
    {bad_param_shape_mismatch, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"},
    {2009, "CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES"},
    {bad_param_attribute_type, "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE"},
    {2011, "CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH"},
    {bad_param_descriptor_type, "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE"},
    {not_supported, "CUDNN_STATUS_NOT_SUPPORTED"},
    {not_supported_graph_pattern, "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN"},
    {not_supported_shape, "CUDNN_STATUS_NOT_SUPPORTED_SHAPE"},
    {not_supported_data_type, "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE"},
    {not_supported_layout, "CUDNN_STATUS_NOT_SUPPORTED_LAYOUT"},
    {3007, "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"},
    {3009, "CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"},
    {internal_error, "CUDNN_STATUS_INTERNAL_ERROR"},
    {host_allocation_failed, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"},
    {device_allocation_failed, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"},
    {execution_failed, "CUDNN_STATUS_EXECUTION_FAILED"},
    {execution_failed_driver, "CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"},
};

/// What cudnnSetCallback was given. Nothing is logged to it: refusals are said on standard error.
struct Callback {
  unsigned mask = 0;
  void* data = nullptr;
  void* function = nullptr;
};
Callback callback;

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnCreate(void** handle) {
  return guarded([&]() -> int {
    if (handle == nullptr) return bad_param;
    *handle = nullptr;
    if (const Status bad = status_of(gpupool::libraries::prepare()); bad != success) return bad;
    *handle = new Handle;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroy(void* handle) {
  Handle* const found = find_handle(handle);
  if (found == nullptr) return success;
  found->alive = 0;
  delete found;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetStream(void* handle, CUstream stream) {
  Handle* const found = find_handle(handle);
  if (found == nullptr) return bad_param;
  found->stream = stream;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetStream(void* handle, CUstream* stream) {
  const Handle* const found = find_handle(handle);
  if (found == nullptr || stream == nullptr) return bad_param;
  *stream = found->stream;
  return success;
}

GPUPOOL_LIBRARY_EXPORT std::size_t cudnnGetVersion() {
  return cudnn_version[0] * 10000 + cudnn_version[1] * 100 + cudnn_version[2];
}
GPUPOOL_LIBRARY_EXPORT std::size_t cudnnGetMaxDeviceVersion() {
  return 1210;  // compute capability 12.1
}
GPUPOOL_LIBRARY_EXPORT std::size_t cudnnGetCudartVersion() {
  return GPUPOOL_CUDA_MAJOR * 1000;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetProperty(int property, int* value) {
  if (value == nullptr || property < 0 || property > 2) return bad_param;
  *value = cudnn_version[property];
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnOpsVersionCheck() {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnCnnVersionCheck() {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnAdvVersionCheck() {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGraphVersionCheck() {
  return success;
}

GPUPOOL_LIBRARY_EXPORT const char* cudnnGetErrorString(int status) {
  for (const StatusName& known : status_names) {
    if (known.status == status) return known.name;
  }
  return "CUDNN_UNKNOWN_STATUS";
}
GPUPOOL_LIBRARY_EXPORT void cudnnGetLastErrorString(char* message, std::size_t size) {
  const std::string& last = last_error();
  if (message == nullptr || size == 0) return;
  const std::size_t count = std::min(size - 1, last.size());
  std::memcpy(message, last.data(), count);
  message[count] = '\0';
}
/// Errors of kernels are those of the driver: a later call of the program meets them.
GPUPOOL_LIBRARY_EXPORT int cudnnQueryRuntimeError(void* handle, int* status, int mode, void*) {
  if (find_handle(handle) == nullptr || status == nullptr || mode < 0 || mode > 2) return bad_param;
  *status = success;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetCallback(unsigned mask, void* data, void* function) {
  callback = {mask, data, function};
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetCallback(unsigned* mask, void** data, void** function) {
  if (mask == nullptr || data == nullptr || function == nullptr) return bad_param;
  *mask = callback.mask;
  *data = callback.data;
  *function = callback.function;
  return success;
}
