#include "shared_api/logs_api.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace gpupool::logs_api {
namespace {

constexpr std::size_t most_log_bytes = 25600;  // as the API documents

}  // namespace

CUresult register_callback(ErrorLog& log, CUlogsCallback callback, void* data, CUlogsCallbackHandle* out) {
  if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t number = log.add_callback(callback, data);
  if (out != nullptr) *out = reinterpret_cast<CUlogsCallbackHandle>(number);
  return CUDA_SUCCESS;
}

CUresult unregister_callback(ErrorLog& log, CUlogsCallbackHandle callback) {
  return log.remove_callback(reinterpret_cast<std::uint64_t>(callback)) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

CUresult current(const ErrorLog& log, CUlogIterator* out, unsigned flags) {
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = log.next();
  return CUDA_SUCCESS;
}

CUresult dump_to_memory(const ErrorLog& log, CUlogIterator* iterator, char* buffer, std::size_t* size,
                        unsigned flags) {
  if (buffer == nullptr || size == nullptr || flags != 0 || *size == 0 || *size > most_log_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::uint32_t first = iterator != nullptr ? *iterator : 0;
  const std::string text = log.text(first, *size - 1);
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  *size = text.size();
  if (iterator != nullptr) *iterator = first;
  return CUDA_SUCCESS;
}

CUresult dump_to_file(const ErrorLog& log, CUlogIterator* iterator, const char* path, unsigned flags) {
  if (path == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t first = iterator != nullptr ? *iterator : 0;
  const std::string text = log.text(first, most_log_bytes);
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return CUDA_ERROR_OPERATING_SYSTEM;
  if (iterator != nullptr) *iterator = first;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::logs_api
