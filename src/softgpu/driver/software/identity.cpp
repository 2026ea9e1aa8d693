#include "softgpu/driver/described/identity.h"

namespace softgpu::driver {

const Identity driver_identity{
    .device_name = "Software GPU (gpupool)",
    .log_name = "softgpu",
    .uuid_name = {'s', 'o', 'f', 't'},
    .takes_machine_code = false,
    .executes = true,
};

}  // namespace softgpu::driver
