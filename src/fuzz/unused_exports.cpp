// Exports of the client runtime that its core calls and that no input reaches: with the core alone they are
// not there.
#include <cuda.h>

#include <cstdlib>

extern "C" {
CUresult cuStreamDestroy_v2(CUstream) {
  std::abort();
}
CUresult cuEventDestroy_v2(CUevent) {
  std::abort();
}
}
