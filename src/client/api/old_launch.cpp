// The launches of CUDA 3, which old bindings still use: kept here until the launch, which is like any other.
#include <cuda.h>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/images.h"
#include "client/process/session_belongings.h"
#include "generated/client_api.h"
#include "shared_api/old_launches.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

OldLaunches& old_launches() {
  static OldLaunches& all = kept_for_session<OldLaunches>([](OldLaunches& kept) { kept.forget(); });
  return all;
}

CUresult check(CUfunction function) {
  return find_function(raw(function)) == nullptr ? bad_handle(wire::Kind::function) : CUDA_SUCCESS;
}

CUresult set(CUfunction f, int offset, const void* value, std::size_t bytes) {
  const CUresult bad = check(f);
  return bad != CUDA_SUCCESS ? bad : old_launches().set_value(f, offset, value, bytes);
}

}  // namespace

namespace gpupool::client::api {

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  const CUresult bad = check(hfunc);
  return bad != CUDA_SUCCESS ? bad : old_launches().set_block(hfunc, x, y, z);
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  const CUresult bad = check(hfunc);
  return bad != CUDA_SUCCESS ? bad : old_launches().set_shared(hfunc, bytes);
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  const CUresult bad = check(hfunc);
  return bad != CUDA_SUCCESS ? bad : old_launches().set_size(hfunc, numbytes);
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set(hfunc, offset, &value, sizeof value);
}
CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set(hfunc, offset, &value, sizeof value);
}
CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set(hfunc, offset, ptr, numbytes);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  if (const CUresult bad = check(f); bad != CUDA_SUCCESS) return bad;
  return old_launches().launch(f, grid_width, grid_height, hStream, api::cuLaunchKernel);
}
CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return api::cuLaunchGridAsync(f, grid_width, grid_height, nullptr);
}
CUresult cuLaunch(CUfunction f) {
  return api::cuLaunchGridAsync(f, 1, 1, nullptr);
}

}  // namespace gpupool::client::api
