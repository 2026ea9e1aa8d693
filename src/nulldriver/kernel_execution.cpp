#include "softgpu/driver/kernel_execution.h"

namespace softgpu::driver {

// Launches were checked when they were issued and take their turn in the stream; that is all.
void execute(const KernelLaunch&) {}

}  // namespace softgpu::driver
