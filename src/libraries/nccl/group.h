// Groups: what a thread calls between GroupStart and GroupEnd is done at the outermost end, all at the same
// time.
#pragma once

#include <functional>

#include "libraries/nccl/communicator.h"

namespace gpupool::nccl {

void start_group();
/// Throws Failure: of the first call in the group that failed, when nothing of the group is done; or of what
/// it did.
void end_group();

/// Now, or at the end of the thread's group.
void submit(std::shared_ptr<Communicator> communicator, Plan plan);
/// Something that waits for other ranks to do it too: done in a thread of its own at the end of a group.
/// Those of one `parent` (null: of none) are done one after another, as its other ranks do them.
void submit(std::function<void()> meeting, std::shared_ptr<Communicator> parent = nullptr);
/// A call failed: so will the group. Returns what it is given.
int noted(int result) noexcept;

}  // namespace gpupool::nccl
