// Initialisation, entry point access, error names.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "client/api/proc_address.h"
#include "client/call/call.h"
#include "client/process/error_names.h"
#include "generated/client_api.h"

using namespace gpupool::client;

#undef cuGetProcAddress

namespace {

const ErrorName* find_error(CUresult error) {
  const auto* const end = error_names + error_name_count;
  const auto* const found = std::lower_bound(error_names, end, static_cast<int>(error),
                                             [](const ErrorName& e, int value) { return e.value < value; });
  return found != end && found->value == static_cast<int>(error) ? found : nullptr;
}

int driver_version() {
  const int profile = runtime().initialised() ? runtime().devices()->driver_version : 0;
  // What the header of this library does not know, it cannot offer.
  return profile > 0 ? std::min(profile, header_version) : header_version;
}

/// The newest form of `name` not newer than `version`. `exists` tells whether there is a form at all.
void* look_up(std::string_view name, int version, bool per_thread, bool& exists) {
  const ProcAddress* const end = proc_addresses + proc_address_count;
  const ProcAddress* at = std::lower_bound(
      proc_addresses, end, name, [](const ProcAddress& p, std::string_view n) { return p.base < n; });
  void* best = nullptr;
  void* best_per_thread = nullptr;
  exists = false;
  for (; at != end && name == at->base; ++at) {
    exists = true;
    if (at->version <= version) (at->per_thread ? best_per_thread : best) = at->address;
  }
  return per_thread && best_per_thread != nullptr ? best_per_thread : best;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags);

CUresult cuInit(unsigned int Flags) {
  return Flags == 0 ? runtime().initialise() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = driver_version();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorName* const found = find_error(error);
  *pStr = found != nullptr ? found->name : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorName* const found = find_error(error);
  *pStr = found != nullptr ? found->text : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  if (symbol == nullptr || pfn == nullptr || cudaVersion > driver_version() || flags > 2)
    return CUDA_ERROR_INVALID_VALUE;
  bool exists = false;
  *pfn = look_up(symbol, cudaVersion, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, exists);
  const auto status = *pfn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                      : exists        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (symbolStatus != nullptr) {
    *symbolStatus = status;
    return CUDA_SUCCESS;
  }
  return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  if (symbol == nullptr || pfn == nullptr || cudaVersion > driver_version() || flags > 2)
    return CUDA_ERROR_INVALID_VALUE;
  bool exists = false;
  void* const found =
      look_up(symbol, cudaVersion, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, exists);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *pfn = found;
  return CUDA_SUCCESS;
}

// The driver's private tables are not offered: programs that need them carry NVIDIA's runtime inside
// themselves.
CUresult cuGetExportTable(const void** ppExportTable, const CUuuid*) {
  if (ppExportTable != nullptr) *ppExportTable = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuProfilerInitialize(const char*, const char*, int) {
  return CUDA_SUCCESS;
}
CUresult cuProfilerStart() {
  return runtime().initialised() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
CUresult cuProfilerStop() {
  return runtime().initialised() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace gpupool::client::api
