// NVML: initialisation, versions, error strings.
#include "nvml/device_query.h"
#include "nvml/device_source.h"
#include "nvml/inventory.h"

using gpupool::nvml::caught;
using gpupool::nvml::copy_text;
using gpupool::nvml::Inventory;

namespace {

/// "13.0" of 13000. The pool's nodes may run different NVIDIA drivers; the CUDA version is what they have in
/// common.
std::string dotted(int cuda_version) {
  return std::to_string(cuda_version / 1000) + '.' + std::to_string(cuda_version % 1000 / 10);
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlInitWithFlags(unsigned int) try { return Inventory::instance().initialise(); } catch (...) {
  return caught();
}
nvmlReturn_t nvmlInit_v2(void) try { return Inventory::instance().initialise(); } catch (...) {
  return caught();
}
nvmlReturn_t nvmlInit(void) try { return Inventory::instance().initialise(); } catch (...) {
  return caught();
}
nvmlReturn_t nvmlShutdown(void) try { return Inventory::instance().shut_down(); } catch (...) {
  return caught();
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) try {
  if (!Inventory::instance().initialised()) return NVML_ERROR_UNINITIALIZED;
  return copy_text(dotted(Inventory::instance().profile().driver_version), version, length);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) try {
  return copy_text(std::to_string(NVML_API_VERSION) + ".0", version, length);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) try {
  // The one query that NVIDIA's library answers without nvmlInit.
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const int known = Inventory::instance().profile().driver_version;
  if (known == 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  *version = known;
  return NVML_SUCCESS;
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) try {
  return nvmlSystemGetCudaDriverVersion(version);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlUnitGetCount(unsigned int* count) try {
  if (!Inventory::instance().initialised()) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
} catch (...) {
  return caught();
}

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED:
      return "NVML was not first initialized with nvmlInit()";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "A supplied argument is invalid";
    case NVML_ERROR_NOT_SUPPORTED:
      return gpupool::nvml::source::not_supported_text;
    case NVML_ERROR_NO_PERMISSION:
      return "The current user does not have permission for this operation";
    case NVML_ERROR_NOT_FOUND:
      return "A query to find an object was unsuccessful";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "An input argument is not large enough";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return gpupool::nvml::source::no_driver_text;
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return "The function is not implemented by this version of NVML";
    case NVML_ERROR_GPU_IS_LOST:
      return "The GPU is lost";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "The version of a structure is not supported";
    default:
      return "Unknown error";
  }
}

}  // extern "C"
