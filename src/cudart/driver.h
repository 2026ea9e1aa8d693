// The driver below this library: whatever libcuda.so.1 the process has.
#pragma once

#include <atomic>

#include "entry_points.h"

namespace gpupool::cudart {

/// The entry points once the driver has been loaded and initialised, else null. A point that this driver does
/// not offer answers CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER.
extern std::atomic<const EntryPoints*> loaded_driver;

/// Loads and initialises the driver. A failure is not remembered: a GPU may be attached later.
cudaError_t load_driver();

inline const EntryPoints& driver() {
  return *loaded_driver.load(std::memory_order_relaxed);
}

/// The entry points of a driver that is there but perhaps not initialised; null when there is none.
const EntryPoints* uninitialised_driver();

}  // namespace gpupool::cudart
