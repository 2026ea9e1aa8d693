/* A library under the name of NVIDIA's JIT linker that links nothing. What counts for cuda-core is the name,
   and that there is no nvJitLinkVersion: it then hands PTX to the driver. What other libraries of NVIDIA's
   were linked with (cuSPARSE 12) is there, so that they can be loaded, and refuses. */
#include <stdio.h>

#define JOINED(a, b, c, d) a##b##_##c##_##d
#define NAME(function, major, minor) JOINED(__nvJitLink, function, major, minor)

enum { internal_error = 6 }; /* NVJITLINK_ERROR_INTERNAL */

static int refuse(void) {
  static int told;
  if (!told) fputs("softgpu: nvJitLink makes machine code, which a software GPU cannot run\n", stderr);
  told = 1;
  return internal_error;
}

#define STUB(function, minor)              \
  int NAME(function, MAJOR, minor)(void);  \
  int NAME(function, MAJOR, minor)(void) { \
    return refuse();                       \
  }
#define OF_MINOR(minor)           \
  STUB(Create, minor)             \
  STUB(Destroy, minor)            \
  STUB(AddData, minor)            \
  STUB(AddFile, minor)            \
  STUB(Complete, minor)           \
  STUB(GetLinkedCubinSize, minor) \
  STUB(GetLinkedCubin, minor)     \
  STUB(GetLinkedPtxSize, minor)   \
  STUB(GetLinkedPtx, minor)       \
  STUB(GetErrorLogSize, minor)    \
  STUB(GetErrorLog, minor)        \
  STUB(GetInfoLogSize, minor)     \
  STUB(GetInfoLog, minor)

OF_MINOR(0)
OF_MINOR(1)
OF_MINOR(2)
OF_MINOR(3)
OF_MINOR(4)
OF_MINOR(5)
OF_MINOR(6)
OF_MINOR(7)
OF_MINOR(8)
OF_MINOR(9)
