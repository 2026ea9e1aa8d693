// How ranks find each other: through the listener of the process that made the unique id.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "libraries/nccl/socket.h"

namespace gpupool::nccl {

constexpr int most_ranks = 1024;

using Secret = std::array<std::byte, 16>;

/// ncclUniqueId: what is in it is ours. Whoever has it may take part.
struct UniqueId {
  std::uint32_t magic;
  Address listener;
  Secret secret;
  std::byte unused[76];
};
static_assert(sizeof(UniqueId) == 128);

/// Listens for the ranks of one communicator in a thread of its own, which tells all of them where each
/// listens.
UniqueId unique_id();

/// A connection to each other rank; this rank's own place is empty. Throws Failure.
std::vector<Socket> meet(const UniqueId& id, int rank, int ranks, const Patience& patience);

}  // namespace gpupool::nccl
