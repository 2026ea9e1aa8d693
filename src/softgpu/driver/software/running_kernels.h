// The kernels that this process executes now, for those who show what runs.
#pragma once

#include <list>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "softgpu/exec/run/standstill.h"

namespace softgpu::driver {

class RunningKernels {
 public:
  using Time = softgpu::Standstill::Clock::time_point;
  struct Kernel {
    std::string name;
    Time since;  // device time
  };

  static RunningKernels& get();

  // One that runs while this lives. The name must live as long.
  class Run {
   public:
    explicit Run(const std::string& name);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    friend class RunningKernels;
    const std::string& name_;
    const Time since_ = softgpu::device_now();
    std::list<const Run*>::iterator place_;
  };

  // What has run for the longest.
  [[nodiscard]] std::optional<Kernel> first();

 private:
  gpupool::Mutex mutex_;
  std::list<const Run*> runs_ GUARDED_BY(mutex_);  // in the order of their begin
};

}  // namespace softgpu::driver
