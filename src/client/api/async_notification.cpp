// Notifications of a device. There is one kind, "the process uses more memory than its budget", which cannot
// happen here: the share bounds what a session gets. So registering is all there is to do.
#include <cuda.h>

#include <cstdint>
#include <map>
#include <new>

#include "base/mutex.h"
#include "client/call/call.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

struct Registered {
  Mutex mutex;
  std::map<std::uintptr_t, CUdevice> on GUARDED_BY(mutex);  ///< by handle
  std::uintptr_t last GUARDED_BY(mutex) = 0;
};
Registered& registered() {
  static Registered& all = *new Registered;
  return all;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc, void*,
                                           CUasyncCallbackHandle* callback) try {
  CUdevice same = 0;
  if (const CUresult bad = api::cuDeviceGet(&same, device); bad != CUDA_SUCCESS) return bad;
  if (callbackFunc == nullptr || callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Registered& all = registered();
  const MutexLock lock(all.mutex);
  all.on.emplace(++all.last, device);
  *callback = reinterpret_cast<CUasyncCallbackHandle>(all.last);
  return CUDA_SUCCESS;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle callback) {
  CUdevice same = 0;
  if (const CUresult bad = api::cuDeviceGet(&same, device); bad != CUDA_SUCCESS) return bad;
  Registered& all = registered();
  const MutexLock lock(all.mutex);
  const auto found = all.on.find(reinterpret_cast<std::uintptr_t>(callback));
  if (found == all.on.end() || found->second != device) return CUDA_ERROR_INVALID_VALUE;
  all.on.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
