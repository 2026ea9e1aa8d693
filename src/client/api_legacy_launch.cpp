// Launches as they were before cuLaunchKernel: block shape, shared memory and parameters are state of the
// function.
#include <cuda.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "client/call.h"
#include "client/export.h"
#include "client/images.h"
#include "client/objects.h"
#include "client/refuse.h"
#include "client/session_belongings.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

struct LaunchState {
  std::array<int, 3> block{1, 1, 1};
  unsigned shared_bytes = 0;
  std::size_t parameter_bytes = 0;
  std::array<std::byte, KernelInfo::max_parameter_bytes> parameters{};
};

struct LaunchStates {
  std::mutex mutex;
  std::map<std::uint64_t, LaunchState> of;  // by function; a handle is not used twice in one generation
};
LaunchStates& states() {
  static LaunchStates& all = kept_for_session<LaunchStates>([](LaunchStates& kept) {
    const std::lock_guard lock(kept.mutex);
    kept.of.clear();
  });
  return all;
}

template <class F>
CUresult change(CUfunction function, F use) {
  if (find_function(raw(function)) == nullptr) return bad_handle(wire::Kind::function);
  const std::lock_guard lock(states().mutex);
  return use(states().of[raw(function)]);
}

CUresult put(CUfunction function, int offset, const void* value, std::size_t size) {
  return change(function, [&](LaunchState& state) {
    if (value == nullptr || offset < 0 || static_cast<std::size_t>(offset) > state.parameters.size() ||
        size > state.parameters.size() - static_cast<std::size_t>(offset)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(state.parameters.data() + offset, value, size);
    return CUDA_SUCCESS;
  });
}

CUresult launch(CUfunction f, int width, int height, CUstream stream) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  LaunchState state;
  const CUresult known_function = change(f, [&](const LaunchState& now) {
    state = now;
    return CUDA_SUCCESS;
  });
  if (known_function != CUDA_SUCCESS) return known_function;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, state.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &state.parameter_bytes, CU_LAUNCH_PARAM_END};
  const auto size = [&](std::size_t n) { return static_cast<unsigned>(state.block[n]); };
  return cuLaunchKernel(f, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, size(0), size(1),
                        size(2), state.shared_bytes, stream, nullptr, extra);
}

}  // namespace

extern "C" {

GPUPOOL_EXPORT CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  return change(hfunc, [&](LaunchState& state) {
    state.block = {x, y, z};
    return CUDA_SUCCESS;
  });
}
GPUPOOL_EXPORT CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return change(hfunc, [&](LaunchState& state) {
    state.shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}
GPUPOOL_EXPORT CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return change(hfunc, [&](LaunchState& state) {
    if (numbytes > state.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    state.parameter_bytes = numbytes;
    return CUDA_SUCCESS;
  });
}
GPUPOOL_EXPORT CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return put(hfunc, offset, &value, sizeof(value));
}
GPUPOOL_EXPORT CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return put(hfunc, offset, &value, sizeof(value));
}
GPUPOOL_EXPORT CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return put(hfunc, offset, ptr, numbytes);
}
GPUPOOL_EXPORT CUresult cuLaunch(CUfunction f) {
  return launch(f, 1, 1, nullptr);
}
GPUPOOL_EXPORT CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch(f, grid_width, grid_height, nullptr);
}
GPUPOOL_EXPORT CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return launch(f, grid_width, grid_height, hStream);
}

// Grids of several devices that wait for each other would need the devices to reach each other's memory.
GPUPOOL_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                                             unsigned int numDevices, unsigned int flags) {
  constexpr unsigned known_flags = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                                   CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
  if (launchParamsList == nullptr || numDevices == 0 || (flags & ~known_flags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (numDevices > 1) {
    return static_cast<CUresult>(refuse("cuLaunchCooperativeKernelMultiDevice",
                                        "grids of several devices cannot wait for each other"));
  }
  const CUDA_LAUNCH_PARAMS& p = *launchParamsList;
  return cuLaunchCooperativeKernel(p.function, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY,
                                   p.blockDimZ, p.sharedMemBytes, p.hStream, p.kernelParams);
}

}  // extern "C"
