// The driver's entry points by name.
#include <algorithm>

#include "cudart/call.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

/// A driver knows no version above its own, and a program that names none takes what there is.
unsigned newest_known() {
  int version = 0;
  const cudaError_t bad =
      forward_without_context([&](const EntryPoints& d) { return d.cuDriverGetVersion(&version); });
  return bad == cudaSuccess ? std::min<unsigned>(CUDART_VERSION, static_cast<unsigned>(version))
                            : CUDART_VERSION;
}

cudaError_t entry_point(const char* symbol, void** function, unsigned version, unsigned long long flags,
                        cudaDriverEntryPointQueryResult* status, CUstream default_stream) {
  if (symbol == nullptr || function == nullptr) return cudaErrorInvalidValue;
  // The default means the flavour that the caller was compiled for.
  const cuuint64_t wanted = flags == cudaEnableDefault && default_stream != nullptr
                                ? static_cast<cuuint64_t>(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
                                : flags;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  *function = nullptr;
  const cudaError_t result = forward_without_context([&](const EntryPoints& d) {
    return d.cuGetProcAddress_v2(symbol, function, static_cast<int>(version), wanted, &found);
  });
  // That a driver lacks a function is told by the status.
  const bool absent = result == cudaErrorSymbolNotFound;
  if (absent && found == CU_GET_PROC_ADDRESS_SUCCESS) found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  return absent ? cudaSuccess : result;
}

}  // namespace

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* driverStatus, CUstream default_stream) {
  return entry_point(symbol, funcPtr, newest_known(), flags, driverStatus, default_stream);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr, unsigned int cudaVersion,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* driverStatus,
                                             CUstream default_stream) {
  return entry_point(symbol, funcPtr, cudaVersion, flags, driverStatus, default_stream);
}

// NVIDIA's private tables are not offered.
cudaError_t cudaGetExportTable(const void** ppExportTable, const cudaUUID_t*) {
  if (ppExportTable == nullptr) return cudaErrorInvalidValue;
  *ppExportTable = nullptr;
  return cudaErrorSymbolNotFound;
}

}  // namespace gpupool::cudart
