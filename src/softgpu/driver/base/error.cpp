#include "softgpu/driver/base/error.h"

#include <array>
#include <map>
#include <string>

#include "base/mutex.h"
#include "softgpu/driver/described/identity.h"

namespace softgpu::driver {
namespace {

// Sentences for the errors that users meet; frameworks look for "out of memory" in this text.
const char* known_sentence(CUresult code) {
  switch (code) {
    case CUDA_SUCCESS:
      return "no error";
    case CUDA_ERROR_INVALID_VALUE:
      return "invalid argument";
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "out of memory";
    case CUDA_ERROR_NOT_INITIALIZED:
      return "the driver is not initialized in this process";
    case CUDA_ERROR_NO_DEVICE:
      return "no CUDA-capable device is detected";
    case CUDA_ERROR_INVALID_DEVICE:
      return "invalid device ordinal";
    case CUDA_ERROR_INVALID_CONTEXT:
      return "invalid device context";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return driver_identity.no_binary_text;
    case CUDA_ERROR_INVALID_PTX:
      return "a PTX compilation failed";
    case CUDA_ERROR_INVALID_HANDLE:
      return "invalid resource handle";
    case CUDA_ERROR_NOT_FOUND:
      return "named symbol not found";
    case CUDA_ERROR_NOT_READY:
      return "device not ready";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return "an illegal memory access was encountered";
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return "too many resources requested for launch";
    case CUDA_ERROR_ASSERT:
      return "device-side assert triggered";
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      return "an illegal instruction was encountered";
    case CUDA_ERROR_MISALIGNED_ADDRESS:
      return "misaligned address";
    case CUDA_ERROR_LAUNCH_FAILED:
      return "unspecified launch failure";
    case CUDA_ERROR_NOT_SUPPORTED:
      return "operation not supported";
    default:
      return nullptr;
  }
}

}  // namespace

const char* error_text(CUresult code) {
  if (const char* sentence = known_sentence(code)) return sentence;
  const char* name = error_name(code);
  if (!name) return nullptr;
  // "CUDA_ERROR_ARRAY_IS_MAPPED" reads "array is mapped"; the strings live as long as the process, as callers
  // expect.
  static gpupool::Mutex mutex;
  static std::map<int, std::string> made;
  const gpupool::MutexLock lock(mutex);
  auto [entry, added] = made.try_emplace(static_cast<int>(code), name);
  if (added) {
    std::string& text = entry->second;
    if (text.rfind("CUDA_ERROR_", 0) == 0) text.erase(0, 11);
    for (char& c : text) c = c == '_' ? ' ' : static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return entry->second.c_str();
}

}  // namespace softgpu::driver
