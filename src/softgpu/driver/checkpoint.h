// The process checkpoint: RUNNING -> lock -> LOCKED -> checkpoint -> CHECKPOINTED -> restore -> LOCKED ->
// unlock.
//
// While locked, API calls wait. While checkpointed, ordinary device memory lies in an unlinked file instead
// of in the device's address range; addresses and handles stay valid. Memory of cuMemCreate is in such a file
// already and stays.
#pragma once

#include <mutex>

#include "softgpu/driver/cuda_api.h"

namespace softgpu::driver {

class Checkpoint {
 public:
  ~Checkpoint();

  CUprocessState state() const;
  // All throw Error(ILLEGAL_STATE) when called out of order.
  // timeout 0: wait for as long as it takes. Throws Error(NOT_READY) after the timeout; the process runs on.
  void lock(unsigned timeout_ms);
  void save();
  void restore();
  void unlock();

 private:
  mutable std::mutex mutex_;
  CUprocessState state_ = CU_PROCESS_STATE_RUNNING;
  int store_ = -1;
};

}  // namespace softgpu::driver
