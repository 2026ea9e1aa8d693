#include "cudart/driver.h"

#include <dlfcn.h>

#include <cstring>
#include <iterator>

#include "base/mutex.h"
#include "cudart/error.h"

namespace gpupool::cudart {

std::atomic<const EntryPoints*> loaded_driver{nullptr};

namespace {

unsigned only_session() {
  return 0;
}

}  // namespace

std::atomic<unsigned (*)()> driver_session{&only_session};

namespace {

CUresult not_in_this_driver() {
  return static_cast<CUresult>(cudaErrorCallRequiresNewerDriver);
}

/// Never freed: threads may call the driver until the process is gone.
const EntryPoints* resolve() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
  constexpr std::size_t count = std::size(entry_point_names);
  static_assert(sizeof(EntryPoints) == count * sizeof(void*));
  auto* const made = new EntryPoints;
  void* found[count];
  for (std::size_t n = 0; n < count; ++n) {
    found[n] = dlsym(library, entry_point_names[n]);
    if (found[n] == nullptr) found[n] = reinterpret_cast<void*>(&not_in_this_driver);
  }
  std::memcpy(static_cast<void*>(made), found, sizeof(found));
  if (void* const sessions = dlsym(library, "gpupool_session_generation")) {
    driver_session.store(reinterpret_cast<unsigned (*)()>(sessions));
  }
  return made;
}

Mutex mutex;
const EntryPoints* resolved = nullptr;  // guarded by mutex

}  // namespace

const EntryPoints* uninitialised_driver() {
  const MutexLock lock(mutex);
  if (resolved == nullptr) resolved = resolve();
  return resolved;
}

cudaError_t load_driver() {
  if (loaded_driver.load(std::memory_order_acquire) != nullptr) return cudaSuccess;
  const EntryPoints* const found = uninitialised_driver();
  if (found == nullptr) return cudaErrorInsufficientDriver;
  if (const CUresult bad = found->cuInit(0); bad != CUDA_SUCCESS) return translate(bad);
  int version = 0;
  if (const CUresult bad = found->cuDriverGetVersion(&version); bad != CUDA_SUCCESS) return translate(bad);
  // Within a major version an older driver serves a newer runtime.
  if (version / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  loaded_driver.store(found, std::memory_order_release);
  return cudaSuccess;
}

}  // namespace gpupool::cudart
