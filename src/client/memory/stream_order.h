// Which streams are one: what is in one is executed in the order in which it was given.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/call/current_context.h"
#include "client/call/objects.h"
#include "client/link/lane.h"
#include "wire/handle.h"

namespace gpupool::client {

/// A number for the stream; 0: it is not known which one it is. Every context has a legacy stream, and every
/// thread has one of its own in each context.
inline std::uint64_t stream_in_order(CUstream stream) {
  constexpr std::uint64_t per_thread_stream = 2, threads_told_apart = 1u << 12;
  const std::uint64_t handle = raw(stream);
  if (handle > per_thread_stream) return handle;
  const std::uint64_t context = current_context();
  const std::uint64_t thread = handle == per_thread_stream ? std::uint64_t{lane_of_this_thread()} + 1 : 0;
  // The number of a context is that of no stream, and its index leaves room for the thread's.
  static_assert(wire::max_handles == 1u << 20);
  return context != 0 && thread < threads_told_apart ? context | thread << 20 : 0;
}

}  // namespace gpupool::client
