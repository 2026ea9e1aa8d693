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

/// A driver may have lost all that it held and begun anew in the same process, as the client runtime does
/// when another GPU session follows one that ended: then this is another number. Always 0 with other drivers.
extern std::atomic<unsigned (*)()> driver_session;

/// The entry points of a driver that is there but perhaps not initialised; null when there is none.
const EntryPoints* uninitialised_driver();

}  // namespace gpupool::cudart
