// Devices, the current one, and versions.
#include <algorithm>
#include <vector>

#include "cudart/call.h"
#include "cudart/device_properties.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

cudaError_t device_count(int& count) {
  return forward_without_context([&](const EntryPoints& d) { return d.cuDeviceGetCount(&count); });
}

cudaError_t check_device(int device) {
  int count = 0;
  if (const cudaError_t bad = device_count(count); bad != cudaSuccess) return bad;
  if (count == 0) return cudaErrorNoDevice;
  return device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return cudaErrorInvalidValue;
  *count = 0;
  const cudaError_t result = device_count(*count);
  return result == cudaSuccess && *count == 0 ? cudaErrorNoDevice : result;
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return cudaErrorInvalidValue;
  CUdevice current = 0;
  // A program that made a context current through the driver API gets that context's device.
  if (load_driver() == cudaSuccess && driver().cuCtxGetDevice(&current) == CUDA_SUCCESS) {
    *device = current;
    return cudaSuccess;
  }
  if (const cudaError_t bad = check_device(thread_state.device); bad != cudaSuccess) return bad;
  *device = thread_state.device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t bad = check_device(device); bad != cudaSuccess) return bad;
  return select_device(device);
}

cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags) {
  if (const cudaError_t bad = check_device(device); bad != cudaSuccess) return bad;
  constexpr unsigned flags_are_valid = 1;  // cudaInitDeviceFlagsAreValid
  if ((flags & ~flags_are_valid) != 0) return cudaErrorInvalidValue;
  if (flags != 0) {
    if (const CUresult bad = driver().cuDevicePrimaryCtxSetFlags_v2(device, deviceFlags); bad != CUDA_SUCCESS)
      return translate(bad);
  }
  CUcontext context = nullptr;
  return primary_context(device, context);
}

cudaError_t cudaSetValidDevices(int* device_arr, int len) {
  if (len < 0 || (len > 0 && device_arr == nullptr)) return cudaErrorInvalidValue;
  for (int n = 0; n < len; ++n) {
    if (const cudaError_t bad = check_device(device_arr[n]); bad != cudaSuccess) return bad;
  }
  // Every device can be used, so the first of the list is the one a thread would get.
  if (len > 0 && !thread_state.ready) thread_state.device = device_arr[0];
  return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  if (const cudaError_t bad = check_device(thread_state.device); bad != cudaSuccess) return bad;
  // Mapping of host memory is always on.
  const unsigned wanted = flags & ~static_cast<unsigned>(cudaDeviceMapHost);
  return translate(driver().cuDevicePrimaryCtxSetFlags_v2(thread_state.device, wanted));
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  if (flags == nullptr) return cudaErrorInvalidValue;
  if (load_driver() == cudaSuccess && driver().cuCtxGetFlags(flags) == CUDA_SUCCESS) {
    *flags |= cudaDeviceMapHost;
    return cudaSuccess;
  }
  if (const cudaError_t bad = check_device(thread_state.device); bad != cudaSuccess) return bad;
  int active = 0;
  const CUresult result = driver().cuDevicePrimaryCtxGetState(thread_state.device, flags, &active);
  *flags |= cudaDeviceMapHost;
  return translate(result);
}

cudaError_t cudaDeviceReset() {
  const cudaError_t result = reset_device();
  if (result == cudaSuccess) thread_state.last_error = cudaSuccess;
  return result;
}

cudaError_t cudaThreadExit() {
  return cudart::cudaDeviceReset();
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return cudaErrorInvalidValue;
  const EntryPoints* const found = uninitialised_driver();
  *driverVersion = 0;  // no driver is not an error here
  return found == nullptr ? cudaSuccess : translate(found->cuDriverGetVersion(driverVersion));
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  if (runtimeVersion == nullptr) return cudaErrorInvalidValue;
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  if (const cudaError_t bad = check_device(peerDevice); bad != cudaSuccess) return bad;
  CUcontext peer = nullptr;
  if (const cudaError_t bad = primary_context(peerDevice, peer); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuCtxEnablePeerAccess(peer, flags); });
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  if (const cudaError_t bad = check_device(peerDevice); bad != cudaSuccess) return bad;
  CUcontext peer = nullptr;
  if (const cudaError_t bad = primary_context(peerDevice, peer); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuCtxDisablePeerAccess(peer); });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (prop == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t bad = check_device(device); bad != cudaSuccess) return bad;
#if CUDART_VERSION < 13000
  // Under this name, 12.x gives the structure of 11.x, which ends before these fields; its header says `_v2`.
  cudaDeviceProp full;
  if (const cudaError_t bad = device_properties(full, device); bad != cudaSuccess) return bad;
  std::copy_n(reinterpret_cast<const char*>(&full), offsetof(cudaDeviceProp, hostRegisterSupported),
              reinterpret_cast<char*>(prop));
  return cudaSuccess;
#else
  return device_properties(*prop, device);
#endif
}

#if CUDART_VERSION < 13000
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* prop, int device) {
  if (prop == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t bad = check_device(device); bad != cudaSuccess) return bad;
  return device_properties(*prop, device);
}
#endif

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* prop) {
  if (device == nullptr || prop == nullptr) return cudaErrorInvalidValue;
  int count = 0;
  if (const cudaError_t bad = cudart::cudaGetDeviceCount(&count); bad != cudaSuccess) return bad;
  *device = 0;
  for (int n = 0; n < count; ++n) {
    cudaDeviceProp has;
    if (const cudaError_t bad = device_properties(has, n); bad != cudaSuccess) return bad;
    const bool new_enough =
        prop->major == 0 || has.major > prop->major || (has.major == prop->major && has.minor >= prop->minor);
    if (new_enough && has.totalGlobalMem >= prop->totalGlobalMem) {
      *device = n;
      return cudaSuccess;
    }
  }
  return cudaSuccess;
}

}  // namespace gpupool::cudart
