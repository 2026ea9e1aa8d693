// What the parts of the test driver know in common: the handles that it gave out, and what streams have
// before them.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

// For the tests: a failure of the next waiting, and whether there is pinned memory.
extern "C" {
extern __attribute__((visibility("default"))) CUresult test_driver_next_wait;
extern __attribute__((visibility("default"))) bool test_driver_uses_pinned;
extern __attribute__((visibility("default"))) int test_driver_devices;
}

namespace test_driver {

/// The worker calls from several threads.
inline std::recursive_mutex& driver_mutex() {
  static std::recursive_mutex all;
  return all;
}
/// While it is set nothing that was given to an explicit stream completes.
inline bool held = false;
/// The same of one stream.
inline CUstream held_stream = nullptr, newest_stream = nullptr;
inline bool is_held(CUstream stream) {
  return stream != nullptr && (held || stream == held_stream);
}
inline std::condition_variable_any released;

inline std::set<void*>& handles() {
  static std::set<void*> all;
  return all;
}
inline void* fresh() {
  static std::uintptr_t next = 0x10000;
  void* const made = reinterpret_cast<void*>(next += 16);
  handles().insert(made);
  return made;
}
inline void must_know(void* handle) {
  if (handles().count(handle) == 0) std::abort();
}
/// The null stream, the legacy and the per-thread one: none of them is captured here.
inline bool is_special(CUstream stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= 2;
}
inline void must_know_stream(CUstream stream) {
  if (!is_special(stream)) must_know(stream);
}
template <class H>
CUresult make(H* out) {
  *out = static_cast<H>(fresh());
  return CUDA_SUCCESS;
}
inline thread_local CUcontext current = nullptr;

inline bool dead(CUcontext context) {
  return handles().count(context) == 0;
}
/// Pinned memory, by the context it goes with.
inline std::map<std::byte*, std::pair<std::size_t, CUcontext>>& pinned() {
  static std::map<std::byte*, std::pair<std::size_t, CUcontext>> all;
  return all;
}
/// What a copy from pinned memory is: bytes that are read later, when the stream gets there.
struct Transfer {
  CUcontext context;
  CUstream stream;
  CUdeviceptr to;
  const std::byte* from;
  std::size_t size;
};
inline std::vector<Transfer>& transfers() {
  static std::vector<Transfer> all;
  return all;
}
inline std::map<CUdeviceptr, std::vector<std::byte>>& device_memory() {
  static std::map<CUdeviceptr, std::vector<std::byte>> all;
  return all;
}
/// Of mipmapped arrays: one level each is enough here.
inline std::map<CUmipmappedArray, CUarray>& levels() {
  static std::map<CUmipmappedArray, CUarray> all;
  return all;
}
inline bool all_live(const std::byte* from) {
  for (const auto& [start, block] : pinned()) {
    if (from >= start && from < start + block.first) return true;
  }
  return false;
}
/// Does what `which` says of the transfers.
template <class F>
void run_transfers(F which) {
  std::erase_if(transfers(), [&](const Transfer& t) {
    if (!which(t)) return false;
    if (!all_live(t.from)) std::abort();
    device_memory()[t.to].assign(t.from, t.from + t.size);
    return true;
  });
}
/// The context and the stream an event was last recorded in; the context alone before.
inline std::map<CUevent, std::pair<CUcontext, CUstream>>& events() {
  static std::map<CUevent, std::pair<CUcontext, CUstream>> all;
  return all;
}
/// Streams that record a graph.
inline std::map<CUstream, CUstreamCaptureStatus>& captures() {
  static std::map<CUstream, CUstreamCaptureStatus> all;
  return all;
}
/// What they record.
inline std::map<CUstream, CUgraph>& recorded_graphs() {
  static std::map<CUstream, CUgraph> all;
  return all;
}
/// Events that were last recorded into a capture, by its stream.
inline std::map<CUevent, CUstream>& captured_events() {
  static std::map<CUevent, CUstream> all;
  return all;
}
/// Streams that the legacy stream waits for.
inline std::set<CUstream>& blocking() {
  static std::set<CUstream> all;
  return all;
}
/// Whether the legacy stream would wait for a stream that is captured.
inline bool legacy_is_caught() {
  for (const auto& [stream, status] : captures()) {
    if (blocking().count(stream) != 0) return true;
  }
  return false;
}
/// Work, a question or a wait in the legacy stream: it ends the captures of streams that this one waits for.
inline CUresult use_legacy() {
  if (!legacy_is_caught()) return CUDA_SUCCESS;
  for (auto& [stream, status] : captures()) {
    if (blocking().count(stream) != 0) status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  }
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}
inline CUresult end(void* handle) {
  must_know(handle);
  handles().erase(handle);
  return CUDA_SUCCESS;
}

}  // namespace test_driver
