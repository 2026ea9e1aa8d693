#include "cudart/context.h"

#include <array>
#include <cstdlib>
#include <vector>

#include "base/mutex.h"
#include "cudart/error.h"

namespace gpupool::cudart {

constinit thread_local ThreadState thread_state;

namespace {

constexpr std::size_t most_devices = 64;  // with more, two devices share a counter
constinit std::array<std::atomic<unsigned>, most_devices> device_resets{};

std::atomic<bool> ending{false};

struct Primaries {
  Mutex mutex;
  std::vector<CUcontext> contexts GUARDED_BY(mutex);  // by device; null: not retained
};

Primaries& primaries() {
  static auto* const made = new Primaries;  // outlives the exit handlers that may still call
  return *made;
}

void note_end() {
  ending.store(true, std::memory_order_relaxed);
}

}  // namespace

bool process_ends() {
  return ending.load(std::memory_order_relaxed);
}

cudaError_t primary_context(int device, CUcontext& context) {
  if (device < 0) return cudaErrorInvalidDevice;
  Primaries& all = primaries();
  const MutexLock lock(all.mutex);
  const auto index = static_cast<std::size_t>(device);
  if (index >= all.contexts.size() || all.contexts[index] == nullptr) {
    CUdevice found = 0;
    CUcontext made = nullptr;
    if (const CUresult bad = driver().cuDeviceGet(&found, device); bad != CUDA_SUCCESS) {
      int count = 0;
      const bool none = driver().cuDeviceGetCount(&count) == CUDA_SUCCESS && count == 0;
      return none ? cudaErrorNoDevice : translate(bad);
    }
    if (const CUresult bad = driver().cuDevicePrimaryCtxRetain(&made, found); bad != CUDA_SUCCESS)
      return translate(bad);
    // The first context is the latest moment that every program passes before its work: handlers that it
    // registers later run before this one.
    if (all.contexts.empty()) std::atexit(note_end);
    if (index >= all.contexts.size()) all.contexts.resize(index + 1, nullptr);
    all.contexts[index] = made;
  }
  context = all.contexts[index];
  return cudaSuccess;
}

cudaError_t select_device(int device) {
  CUcontext context = nullptr;
  if (const cudaError_t bad = primary_context(device, context); bad != cudaSuccess) return bad;
  if (const CUresult bad = driver().cuCtxSetCurrent(context); bad != CUDA_SUCCESS) return translate(bad);
  thread_state.device = device;
  thread_state.own = context;
  thread_state.ready = true;
  return cudaSuccess;
}

cudaError_t enter_first() {
  if (process_ends()) return cudaErrorCudartUnloading;
  if (const cudaError_t bad = load_driver(); bad != cudaSuccess) return bad;
  CUcontext current = nullptr;
  if (const CUresult bad = driver().cuCtxGetCurrent(&current); bad != CUDA_SUCCESS) return translate(bad);
  if (current == nullptr) return select_device(thread_state.device);
  thread_state.ready = true;
  return cudaSuccess;
}

bool regain_context(CUresult result) {
  CUcontext current = nullptr;
  if (driver().cuCtxGetCurrent(&current) != CUDA_SUCCESS) return false;
  if (result == CUDA_ERROR_INVALID_CONTEXT && current != nullptr) return false;
  // Only a primary context comes back by itself; a context that the program made is the program's business.
  if (current != nullptr && current != thread_state.own) return false;
  return select_device(thread_state.device) == cudaSuccess;
}

cudaError_t current_device(CUdevice& device) {
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  CUresult result = driver().cuCtxGetDevice(&device);
  if (lost_context(result) && regain_context(result)) result = driver().cuCtxGetDevice(&device);
  return translate(result);
}

cudaError_t reset_device() {
  if (const cudaError_t bad = load_driver(); bad != cudaSuccess) return bad;
  CUdevice device = thread_state.device;
  if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) device = thread_state.device;
  Primaries& all = primaries();
  const MutexLock lock(all.mutex);
  const CUresult result = driver().cuDevicePrimaryCtxReset_v2(device);
  if (const auto index = static_cast<std::size_t>(device);
      index < all.contexts.size() && all.contexts[index]) {
    driver().cuDevicePrimaryCtxRelease_v2(device);
    all.contexts[index] = nullptr;
    driver().cuCtxSetCurrent(nullptr);
  }
  thread_state.ready = false;
  if (result == CUDA_SUCCESS) resets_of(device).fetch_add(1, std::memory_order_relaxed);
  return translate(result);
}

std::atomic<unsigned>& resets_of(int device) {
  return device_resets[static_cast<std::size_t>(device) % most_devices];
}

}  // namespace gpupool::cudart
