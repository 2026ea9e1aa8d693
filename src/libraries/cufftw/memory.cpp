// Host memory, as aligned as any vector of a processor is large.
#include <cstdlib>

#include "libraries/shared/export.h"

// Each function twice: for double and for single precision.
#define GPUPOOL_FFTW(prefix)                                       \
  GPUPOOL_LIBRARY_EXPORT void* prefix##_malloc(std::size_t size) { \
    return std::aligned_alloc(64, (size + 63) / 64 * 64);          \
  }                                                                \
  GPUPOOL_LIBRARY_EXPORT void prefix##_free(void* memory) {        \
    std::free(memory);                                             \
  }                                                                \
  /* There are no plans, so nothing is kept. */                    \
  GPUPOOL_LIBRARY_EXPORT void prefix##_cleanup() {}

GPUPOOL_FFTW(fftw)
GPUPOOL_FFTW(fftwf)
