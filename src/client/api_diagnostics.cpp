// The error log, and the settings of core dumps, which are never written.
#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "client/call.h"
#include "client/error_log.h"
#include "client/export.h"
#include "client/refuse.h"

using namespace gpupool::client;

namespace {

constexpr std::size_t most_log_bytes = 25600;  // as the API documents

/// Start and complete callbacks: remembered only so that a wrong handle is told from a right one.
struct CoredumpCallbacks {
  std::mutex mutex;
  std::set<std::uint64_t> start, complete;
  std::uint64_t next = 1;
};
CoredumpCallbacks& coredump_callbacks() {
  static CoredumpCallbacks& all = *new CoredumpCallbacks;
  return all;
}

CUresult register_callback(std::set<std::uint64_t>& callbacks, CUcoredumpStatusCallback function,
                           CUcoredumpCallbackHandle* out) {
  if (function == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CoredumpCallbacks& all = coredump_callbacks();
  const std::lock_guard lock(all.mutex);
  callbacks.insert(all.next);
  *out = handle_as<CUcoredumpCallbackHandle>(all.next++);
  return CUDA_SUCCESS;
}

CUresult deregister_callback(std::set<std::uint64_t>& callbacks, CUcoredumpCallbackHandle callback) {
  const std::lock_guard lock(coredump_callbacks().mutex);
  return callbacks.erase(raw(callback)) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

extern "C" {

GPUPOOL_EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                               CUlogsCallbackHandle* callback_out) {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t number = error_log().add_callback(callbackFunc, userData);
  if (callback_out != nullptr) *callback_out = handle_as<CUlogsCallbackHandle>(number);
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return error_log().remove_callback(raw(callback)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

GPUPOOL_EXPORT CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  if (iterator_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = error_log().next();
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                                           unsigned int flags) {
  if (buffer == nullptr || size == nullptr || flags != 0 || *size == 0 || *size > most_log_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::uint32_t first = iterator != nullptr ? *iterator : 0;
  const std::string text = error_log().text(first, *size - 1);
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  *size = text.size();
  if (iterator != nullptr) *iterator = first;
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile,
                                         unsigned int flags) {
  if (pathToFile == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t first = iterator != nullptr ? *iterator : 0;
  const std::string text = error_log().text(first, most_log_bytes);
  std::FILE* const file = std::fopen(pathToFile, "w");
  if (file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return CUDA_ERROR_OPERATING_SYSTEM;
  if (iterator != nullptr) *iterator = first;
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return get_coredump(attrib, value, size);
}
GPUPOOL_EXPORT CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return get_coredump(attrib, value, size);
}
GPUPOOL_EXPORT CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return set_coredump(attrib, value, size);
}
GPUPOOL_EXPORT CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return set_coredump(attrib, value, size);
}
GPUPOOL_EXPORT CUresult cuCoredumpRegisterStartCallback(CUcoredumpStatusCallback callback, void*,
                                                        CUcoredumpCallbackHandle* callbackOut) {
  return register_callback(coredump_callbacks().start, callback, callbackOut);
}
GPUPOOL_EXPORT CUresult cuCoredumpRegisterCompleteCallback(CUcoredumpStatusCallback callback, void*,
                                                           CUcoredumpCallbackHandle* callbackOut) {
  return register_callback(coredump_callbacks().complete, callback, callbackOut);
}
GPUPOOL_EXPORT CUresult cuCoredumpDeregisterStartCallback(CUcoredumpCallbackHandle callback) {
  return deregister_callback(coredump_callbacks().start, callback);
}
GPUPOOL_EXPORT CUresult cuCoredumpDeregisterCompleteCallback(CUcoredumpCallbackHandle callback) {
  return deregister_callback(coredump_callbacks().complete, callback);
}

}  // extern "C"
