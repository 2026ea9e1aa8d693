// The control interface that Python uses through ctypes.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "client/api/guard.h"
#include "client/memory/device_memory.h"
#include "client/process/export.h"
#include "client/process/log.h"
#include "client/progress/completion.h"
#include "client/session/attach_again.h"
#include "client/session/lease_wait.h"
#include "client/session/runtime.h"
#include "client/session/session_file_watch.h"

using namespace gpupool::client;

namespace {

int put(const std::string& text, char* buffer, std::size_t n) {
  if (buffer != nullptr && n > 0) {
    const std::size_t size = std::min(text.size(), n - 1);
    std::memcpy(buffer, text.data(), size);
    buffer[size] = '\0';
  }
  return static_cast<int>(text.size());
}

/// The length of a text; 0 when there was no memory to write it.
template <class Body>
int text(Body&& body) noexcept {
  int length = 0;
  static_cast<void>(guarded([&] {
    length = body();
    return CUDA_SUCCESS;
  }));
  return length;
}

}  // namespace

extern "C" {

/// Re-reads the session file and connects or takes the lease now. 0, or the CUresult.
GPUPOOL_EXPORT int gpupool_attach(void) {
  return guarded([] {
    if (const CUresult bad = runtime().initialise(); bad != CUDA_SUCCESS) return bad;
    return runtime().attach(true);
  });
}

/// Finishes posted work. 0, or the CUresult of what failed; deferred errors surface here.
GPUPOOL_EXPORT int gpupool_drain(int timeout_ms) {
  return guarded([&] {
    const CallerTellsRefusals drained;
    // The session may rest from now on: what the program has freed is not to be kept, moved and brought back.
    if (runtime().connected()) static_cast<void>(device_memory().trim_all());
    return runtime().drain(timeout_ms, note_drained);
  });
}

/// Forgets the lease; the connection stays. Later calls re-read the session file.
GPUPOOL_EXPORT int gpupool_detach(void) {
  return guarded([] {
    runtime().detach();
    return CUDA_SUCCESS;
  });
}

/// Writes JSON, at most `n` bytes with its NUL, and returns the length that the whole needs without it.
GPUPOOL_EXPORT int gpupool_counters(char* buffer, size_t n, int reset_peak) {
  return text([&] { return put(runtime().counters_json(reset_peak != 0), buffer, n); });
}

/// What the session's devices are doing, as JSON (interrupt_words.h), in the same way. Within 2 s, from any
/// thread, also while others wait for the worker.
GPUPOOL_EXPORT int gpupool_inquire(char* buffer, size_t n) {
  return text([&] { return put(runtime().inquiry_json(), buffer, n); });
}

/// How many sessions this process has begun, with the one that begins now because the last one is over. What
/// a program knows of the GPU is gone when the number is another one.
GPUPOOL_EXPORT unsigned gpupool_session_generation(void) {
  static_cast<void>(guarded([] {
    runtime().begin_if_over();
    return CUDA_SUCCESS;
  }));
  return runtime().session_generation();
}

/// Ends the session, from any thread: what is in GPU memory is lost, calls that wait return with an error.
/// The next lease begins a new session. 0, or the CUresult. Within 1 s.
GPUPOOL_EXPORT int gpupool_end_session(void) {
  return guarded([] { return runtime().end_session(); });
}

/// Why the last refused call of this thread was refused. Valid until the thread's next refusal.
GPUPOOL_EXPORT const char* gpupool_last_message(void) {
  return last_message();
}

/// Why a call of the main thread was refused, once, where this process tells its user itself
/// (GPUPOOL_REFUSALS_TOLD_BY); empty: none was. Valid until the next time.
GPUPOOL_EXPORT const char* gpupool_take_refusal(void) {
  return take_refusal();
}

/// Whether calls that find no GPU attached wish for one and wait, instead of failing (`%gpu auto on`).
/// Said again it ends the second in which calls fail after one that has waited in vain.
GPUPOOL_EXPORT void gpupool_wish_for_leases(int on) {
  static_cast<void>(guarded([&] {
    // Only then a call after a share was given back is no error, and must not be lost.
    if (on != 0) watch_session_file();
    wish_for_leases(on != 0);
    end_quiet();
    return CUDA_SUCCESS;
  }));
}

}  // extern "C"
