// The number by which the worker tells the threads of this process apart.
#pragma once

#include <cstdint>

namespace gpupool::client {

/// Small; unique among the threads that live, and given to another when the thread has ended. 0 is shared by
/// threads that are just ending.
std::uint32_t lane_of_this_thread();

}  // namespace gpupool::client
