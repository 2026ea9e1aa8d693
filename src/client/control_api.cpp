// The control interface that Python uses through ctypes.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "client/export.h"
#include "client/log.h"
#include "client/runtime.h"

using namespace gpupool::client;

extern "C" {

/// Re-reads the session file and connects or takes the lease now. 0, or the CUresult.
GPUPOOL_EXPORT int gpupool_attach(void) {
  if (const CUresult bad = runtime().initialise(); bad != CUDA_SUCCESS) return bad;
  return runtime().attach();
}

/// Finishes posted work. 0, or the CUresult of what failed; deferred errors surface here.
GPUPOOL_EXPORT int gpupool_drain(int timeout_ms) {
  return runtime().drain(timeout_ms);
}

/// Forgets the lease; the connection stays. Later calls re-read the session file.
GPUPOOL_EXPORT int gpupool_detach(void) {
  runtime().detach();
  return 0;
}

/// Writes JSON, at most `n` bytes with its NUL, and returns the length that the whole needs without it.
GPUPOOL_EXPORT int gpupool_counters(char* buffer, size_t n, int reset_peak) {
  const std::string text = runtime().counters_json(reset_peak != 0);
  if (buffer != nullptr && n > 0) {
    const std::size_t size = std::min(text.size(), n - 1);
    std::memcpy(buffer, text.data(), size);
    buffer[size] = '\0';
  }
  return static_cast<int>(text.size());
}

/// Why the last refused call of this thread was refused. Valid until the thread's next refusal.
GPUPOOL_EXPORT const char* gpupool_last_message(void) {
  return last_message();
}

}  // extern "C"
