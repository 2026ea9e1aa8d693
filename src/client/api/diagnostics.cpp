// The error log, and the settings of core dumps, which are never written.
#include <cuda.h>

#include <cstring>
#include <set>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/call/refuse.h"
#include "generated/client_api.h"
#include "shared_api/logs_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

/// Start and complete callbacks: remembered only so that a wrong handle is told from a right one.
struct CoredumpCallbacks {
  Mutex mutex;
  std::set<std::uint64_t> start GUARDED_BY(mutex), complete GUARDED_BY(mutex);
  std::uint64_t next GUARDED_BY(mutex) = 1;
};
CoredumpCallbacks& coredump_callbacks() {
  static CoredumpCallbacks& all = *new CoredumpCallbacks;
  return all;
}

using Callbacks = std::set<std::uint64_t> CoredumpCallbacks::*;

CUresult register_callback(Callbacks callbacks, CUcoredumpStatusCallback function,
                           CUcoredumpCallbackHandle* out) {
  if (function == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CoredumpCallbacks& all = coredump_callbacks();
  const MutexLock lock(all.mutex);
  (all.*callbacks).insert(all.next);
  *out = handle_as<CUcoredumpCallbackHandle>(all.next++);
  return CUDA_SUCCESS;
}

CUresult deregister_callback(Callbacks callbacks, CUcoredumpCallbackHandle callback) {
  CoredumpCallbacks& all = coredump_callbacks();
  const MutexLock lock(all.mutex);
  return (all.*callbacks).erase(raw(callback)) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// Bytes of a setting's value: a bool, an int of flags, or an empty text.
std::size_t coredump_value_size(CUcoredumpSettings attribute) {
  switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      return sizeof(bool);
    case CU_COREDUMP_GENERATION_FLAGS:
      return sizeof(int);
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
      return 1;
    default:
      return 0;
  }
}

CUresult get_coredump(CUcoredumpSettings attribute, void* value, size_t* size) {
  const std::size_t needed = coredump_value_size(attribute);
  if (needed == 0 || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (value != nullptr) {
    if (*size < needed) return CUDA_ERROR_INVALID_VALUE;
    std::memset(value, 0, needed);
  }
  *size = needed;
  return CUDA_SUCCESS;
}

CUresult set_coredump(CUcoredumpSettings attribute, const void* value, const size_t* size) {
  const std::size_t needed = coredump_value_size(attribute);
  if (needed == 0 || value == nullptr || size == nullptr || *size < needed) return CUDA_ERROR_INVALID_VALUE;
  static constexpr std::byte off[sizeof(int)] = {};
  if (std::memcmp(value, off, needed) == 0) return CUDA_SUCCESS;
  return static_cast<CUresult>(refuse(
      "cuCoredumpSetAttribute", "a core dump would be written on the node, out of this program's reach"));
}

}  // namespace

namespace gpupool::client::api {

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) {
  return gpupool::logs_api::register_callback(gpupool::error_log(), callbackFunc, userData, callback_out);
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return gpupool::logs_api::unregister_callback(gpupool::error_log(), callback);
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  return gpupool::logs_api::current(gpupool::error_log(), iterator_out, flags);
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size, unsigned int flags) {
  return gpupool::logs_api::dump_to_memory(gpupool::error_log(), iterator, buffer, size, flags);
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int flags) {
  return gpupool::logs_api::dump_to_file(gpupool::error_log(), iterator, pathToFile, flags);
}

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return get_coredump(attrib, value, size);
}
CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return get_coredump(attrib, value, size);
}
CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return set_coredump(attrib, value, size);
}
CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return set_coredump(attrib, value, size);
}
CUresult cuCoredumpRegisterStartCallback(CUcoredumpStatusCallback callback, void*,
                                         CUcoredumpCallbackHandle* callbackOut) {
  return register_callback(&CoredumpCallbacks::start, callback, callbackOut);
}
CUresult cuCoredumpRegisterCompleteCallback(CUcoredumpStatusCallback callback, void*,
                                            CUcoredumpCallbackHandle* callbackOut) {
  return register_callback(&CoredumpCallbacks::complete, callback, callbackOut);
}
CUresult cuCoredumpDeregisterStartCallback(CUcoredumpCallbackHandle callback) {
  return deregister_callback(&CoredumpCallbacks::start, callback);
}
CUresult cuCoredumpDeregisterCompleteCallback(CUcoredumpCallbackHandle callback) {
  return deregister_callback(&CoredumpCallbacks::complete, callback);
}

}  // namespace gpupool::client::api
