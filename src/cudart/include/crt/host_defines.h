// The few macros that cuda_runtime_api.h takes from the compiler's own header of this name. The runtime
// wheels leave that header to the nvcc package, which is not needed to build a host library.
#pragma once

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
