#include "softgpu/driver/software/running_kernels.h"

#include "base/mutex.h"

namespace softgpu::driver {

RunningKernels& RunningKernels::get() {
  static auto* const made = new RunningKernels;  // streams' threads may still run while the process ends
  return *made;
}

RunningKernels::Run::Run(const std::string& name) : name_(name) {
  RunningKernels& all = get();
  const gpupool::MutexLock lock(all.mutex_);
  place_ = all.runs_.insert(all.runs_.end(), this);
}

RunningKernels::Run::~Run() {
  RunningKernels& all = get();
  const gpupool::MutexLock lock(all.mutex_);
  all.runs_.erase(place_);
}

std::optional<RunningKernels::Kernel> RunningKernels::first() {
  const gpupool::MutexLock lock(mutex_);
  if (runs_.empty()) return std::nullopt;
  return Kernel{runs_.front()->name_, runs_.front()->since_};
}

}  // namespace softgpu::driver
