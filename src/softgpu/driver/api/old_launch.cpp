// The launches of CUDA 3, which old bindings still use.
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/program/launch.h"

#include "shared_api/old_launches.h"

using namespace softgpu::driver;

namespace {

gpupool::OldLaunches& old_launches() {
  static gpupool::OldLaunches& all = *new gpupool::OldLaunches;
  return all;
}

// cuLaunchKernel is an entry of its own, so nothing of it may be called inside another.
CUresult launch(CUfunction f, int width, int height, CUstream stream) {
  const CUresult bad = entry([&] { resolve_function(f); });
  if (bad != CUDA_SUCCESS) return bad;
  return entry_any_time([&] { return old_launches().launch(f, width, height, stream, cuLaunchKernel); });
}

CUresult set(CUfunction f, int offset, const void* value, std::size_t bytes) {
  return entry([&] {
    resolve_function(f);
    return old_launches().set_value(f, offset, value, bytes);
  });
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return entry([&] {
    resolve_function(hfunc);
    return old_launches().set_block(hfunc, x, y, z);
  });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return entry([&] {
    resolve_function(hfunc);
    return old_launches().set_shared(hfunc, bytes);
  });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return entry([&] {
    resolve_function(hfunc);
    return old_launches().set_size(hfunc, numbytes);
  });
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

CUresult cuLaunch(CUfunction f) {
  return launch(f, 1, 1, nullptr);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return launch(f, grid_width, grid_height, hStream);
}
