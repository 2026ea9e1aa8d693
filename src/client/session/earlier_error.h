// The failure of a post: no call had an answer in which it could have been told.
#pragma once

#include <cuda.h>

namespace gpupool::client {

struct WorkerLink;

/// The result of a call that has an answer of a worker: the error of an earlier post to it, if one is known
/// and was not told yet, which is logged, else `own`.
CUresult earlier_or(CUresult own, const WorkerLink& worker);

}  // namespace gpupool::client
