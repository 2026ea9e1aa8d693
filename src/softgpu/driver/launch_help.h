// Who waits for a launch may take part in it. Each driver that is built from these sources has its own way.
#pragma once

#include <thread>

namespace softgpu::driver {

// Whether some launch wants more threads.
bool help_wanted();
// Takes part in the launch that `owner` executes; false if it wants nobody.
bool help(std::thread::id owner);

}  // namespace softgpu::driver
