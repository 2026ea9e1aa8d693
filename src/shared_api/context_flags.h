// What may be asked of a context.
#pragma once

#include <cuda.h>

namespace gpupool {

/// Whether `flags` are flags of a context, with one way to wait at most.
constexpr bool are_context_flags(unsigned flags) {
  const unsigned waiting = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 && (waiting & (waiting - 1)) == 0;
}

}  // namespace gpupool
