// What the session of a process calls in the exports of the client runtime, and no input reaches: without
// them it is not there.
#include <cuda.h>

#include <cstdlib>

#include "client/call/capture.h"
#include "client/memory/virtual_memory.h"

gpupool::client::VirtualMemory& gpupool::client::virtual_memory() {
  std::abort();
}

CUresult gpupool::client::is_capturing(CUstream, bool&) {
  std::abort();
}

extern "C" {
CUresult cuStreamSynchronize(CUstream) {
  std::abort();
}
CUresult cuStreamDestroy_v2(CUstream) {
  std::abort();
}
CUresult cuEventDestroy_v2(CUevent) {
  std::abort();
}
}
