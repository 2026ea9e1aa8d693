// Driver functions that are not supported.
#pragma once

namespace gpupool::client {

/// CUDA_ERROR_NOT_SUPPORTED; names the function and the reason once per process in the log.
int refuse(const char* function, const char* reason);

}  // namespace gpupool::client
