// The error log: what is said of faults of kernels beyond their number.
// First, as it is what declares CUDA's functions as exported.
#include "softgpu/driver/api/entry.h"

#include "shared_api/logs_api.h"

using namespace softgpu::driver;
namespace logs_api = gpupool::logs_api;

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) {
  return entry_any_time([&] {
    return logs_api::register_callback(gpupool::error_log(), callbackFunc, userData, callback_out);
  });
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return entry_any_time([&] { return logs_api::unregister_callback(gpupool::error_log(), callback); });
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  return entry_any_time([&] { return logs_api::current(gpupool::error_log(), iterator_out, flags); });
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int flags) {
  return entry_any_time(
      [&] { return logs_api::dump_to_file(gpupool::error_log(), iterator, pathToFile, flags); });
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size, unsigned int flags) {
  return entry_any_time(
      [&] { return logs_api::dump_to_memory(gpupool::error_log(), iterator, buffer, size, flags); });
}
