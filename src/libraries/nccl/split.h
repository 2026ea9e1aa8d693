// A communicator of some ranks of another one.
#pragma once

#include "libraries/nccl/communicator.h"

namespace gpupool::nccl {

/// ncclSplit's color of a rank that will be in none.
constexpr int no_color = -1;

/// Called by all ranks of `parent`: those of one color are a new communicator, in the order of their keys and
/// then of their ranks. Null for no_color. Throws Failure, and then the parent has ended.
std::shared_ptr<Communicator> split(Communicator& parent, int color, int key);

}  // namespace gpupool::nccl
