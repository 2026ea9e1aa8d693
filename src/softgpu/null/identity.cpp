#include "softgpu/driver/described/identity.h"

namespace softgpu::driver {

const Identity driver_identity{
    .device_name = "null driver (executes nothing)",
    .log_name = "null driver",
    .uuid_name = {'n', 'u', 'l', 'l'},
    .takes_machine_code = true,
    .executes = false,
};

}  // namespace softgpu::driver
