// The process checkpoint: RUNNING -> lock -> LOCKED -> checkpoint -> CHECKPOINTED -> restore -> LOCKED ->
// unlock.
//
// While locked, API calls wait. While checkpointed, the devices hold nothing of this process: no device
// address can be touched and nothing counts against a device's memory. Ordinary memory lies in host stores;
// memory of cuMemCreate stays in its files, which are host memory, mapped nowhere. Addresses and handles stay
// valid.
#pragma once

#include <utility>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/backing/host_store.h"
#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Checkpoint {
 public:
  static Checkpoint& of_process();

  CUprocessState state() const;
  // All throw Error(ILLEGAL_STATE) when called out of order.
  // timeout 0: wait for as long as it takes. Throws Error(NOT_READY) after the timeout; the process runs on.
  void lock(unsigned timeout_ms);
  void save();
  // From the card that a device was on to the one that it shall be on; empty: every device to its own. Throws
  // Error(INVALID_VALUE) unless every device that holds something is named and no two get the same card.
  using CardPairs = std::vector<std::pair<CUuuid, CUuuid>>;
  void restore(const CardPairs& pairs);
  void unlock();

 private:
  mutable gpupool::Mutex mutex_;
  CUprocessState state_ GUARDED_BY(mutex_) = CU_PROCESS_STATE_RUNNING;
  std::vector<HostStore> stores_ GUARDED_BY(mutex_);  // one per device
};

}  // namespace softgpu::driver
