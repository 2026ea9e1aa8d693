#include "softgpu/driver/program/kernel_execution.h"

#include "softgpu/driver/stream/launch_help.h"

namespace softgpu::driver {

// Launches were checked when they were issued and take their turn in the stream; that is all.
void execute(const KernelLaunch&) {}

bool help_wanted() {
  return false;
}

bool help(std::thread::id) {
  return false;
}

bool in_a_moment(std::function<void()>) {
  return false;
}

}  // namespace softgpu::driver
