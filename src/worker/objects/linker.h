// Pending invocations of the driver's linker.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "worker/objects/jit_options.h"

namespace gpupool::worker {

struct Link {
  CUlinkState state = nullptr;
  JitOptions options;  ///< the driver writes into its logs until the state is destroyed
};

/// By the client's handle.
using LinkTable = std::map<std::uint64_t, std::unique_ptr<Link>>;

}  // namespace gpupool::worker
