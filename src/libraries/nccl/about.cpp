// What programs ask without a communicator: the version and the words of a result.
#include <cstdio>

#include "libraries/nccl/status.h"

namespace {

using namespace gpupool::nccl;

constexpr int version = 2 * 10000 + 30 * 100 + 7;

int read_version(int* value) {
  if (value == nullptr) return invalid_argument;
  *value = version;
  return success;
}

const char* text_of(int result) {
  static constexpr const char* texts[results] = {
      "no error",
      "a CUDA function failed",
      "a function of the operating system failed",
      "the library went wrong",
      "an argument has a value that is not allowed",
      "the library cannot be used in this way",
      "another process failed, or the network",
      "the operation is still going on",
      "the operation took too long",
  };
  return result >= 0 && result < results ? texts[result] : "an unknown result of NCCL";
}

}  // namespace

namespace gpupool::nccl {
namespace {

thread_local char last_text[256];

}  // namespace

void remember_error(const char* text) noexcept {
  std::snprintf(last_text, sizeof(last_text), "%s", text);
}

const char* last_error() noexcept {
  return last_text;
}

}  // namespace gpupool::nccl

// Each function twice: a profiler puts its own in place of the first and calls the second.
#define GPUPOOL_NCCL(prefix)                                              \
  GPUPOOL_LIBRARY_EXPORT int prefix##GetVersion(int* value) {             \
    return read_version(value);                                           \
  }                                                                       \
  GPUPOOL_LIBRARY_EXPORT const char* prefix##GetErrorString(int result) { \
    return text_of(result);                                               \
  }                                                                       \
  /* What was refused has been said on standard error. */                 \
  GPUPOOL_LIBRARY_EXPORT const char* prefix##GetLastError(void*) {        \
    return last_error();                                                  \
  }

GPUPOOL_NCCL(nccl)
GPUPOOL_NCCL(pnccl)
