// Streams: what is more than one driver call.
#include <memory>

#include "cudart/call.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

struct Callback {
  cudaStreamCallback_t function;
  void* data;
};

void CUDA_CB run_callback(CUstream stream, CUresult status, void* data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  callback->function(stream, translate(status), callback->data);
}

}  // namespace

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* userData,
                                  unsigned int flags) {
  if (callback == nullptr) return cudaErrorInvalidValue;
  // The status that the callback gets is the runtime's, so it goes through a function of ours.
  std::unique_ptr<Callback> held(new Callback{callback, userData});
  const cudaError_t result = forward(
      [&](const EntryPoints& d) { return d.cuStreamAddCallback(stream, run_callback, held.get(), flags); });
  if (result == cudaSuccess) static_cast<void>(held.release());
  return result;
}

cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int* device) {
  if (device == nullptr) return cudaErrorInvalidValue;
  CUcontext of_stream = nullptr;
  if (const cudaError_t bad =
          forward([&](const EntryPoints& d) { return d.cuStreamGetCtx(hStream, &of_stream); });
      bad != cudaSuccess)
    return bad;
  if (const CUresult bad = driver().cuCtxPushCurrent_v2(of_stream); bad != CUDA_SUCCESS)
    return translate(bad);
  CUdevice found = 0;
  const CUresult result = driver().cuCtxGetDevice(&found);
  driver().cuCtxPopCurrent_v2(&of_stream);
  *device = found;
  return translate(result);
}

}  // namespace gpupool::cudart
