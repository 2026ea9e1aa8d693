// cuda.h with every versioned name visible under its own name (no macro renames cuX to cuX_v2),
// and with default visibility for the functions: they are the library's only exports.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#ifndef __CUDA_API_PUSH_VISIBILITY_DEFAULT
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#endif
#include <cuda.h>

// cudaProfiler.h is absent from the packages that carry cuda.h; its three functions are part of the ABI.
extern "C" {
__attribute__((visibility("default"))) CUresult cuProfilerInitialize(const char* configFile,
                                                                     const char* outputFile, int outputMode);
__attribute__((visibility("default"))) CUresult cuProfilerStart(void);
__attribute__((visibility("default"))) CUresult cuProfilerStop(void);
}
