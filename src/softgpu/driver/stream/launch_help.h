// A thread that waits for a launch may take part in it. Each driver that is built from these sources has its
// own way.
#pragma once

#include <functional>
#include <thread>

namespace softgpu::driver {

// Whether some launch wants more threads.
bool help_wanted();
// Takes part in the launch that `owner` executes; false if it wants nobody.
bool help(std::thread::id owner);
// Has a thread that is awake, with nothing to do, call that a few microseconds later; false if there is none.
bool in_a_moment(std::function<void()> call);

}  // namespace softgpu::driver
