// Communicators, and the exchange that they do.
//
// An exchange is done by the thread that calls: it returns when this rank has what it gets, in its stream,
// and what it gives has left. NCCL returns earlier, but promises no more: its callers may not count on a call
// to return before the other ranks make theirs, except in a group. A stream that waited on the device for
// other ranks would keep a shared GPU from exactly those ranks.
//
// States: working; ended by a failure (`error`, its connections are closed, so that the others end too); or
// aborted. An ended one refuses all but Abort, Destroy and what reads its numbers.
//
// Locks, in this order: `busy` of each communicator of a group, by address; the registry's. `stop` and
// `error` are atomics, so that Abort and GetAsyncError need none.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "libraries/nccl/bootstrap.h"
#include "libraries/nccl/factors.h"
#include "libraries/nccl/plan.h"
#include "libraries/nccl/status.h"

namespace gpupool::nccl {

struct Communicator {
  int rank = 0;
  int ranks = 1;
  CUdevice device = 0;
  CUcontext context = nullptr;
  std::atomic<bool> stop{false};
  std::atomic<int> error{success};
  std::mutex busy;
  std::unique_ptr<Mesh> mesh;  ///< guarded by busy
  Factors factors;

  /// Throws what it ended by.
  void require_working() const;
  /// Ends it; `busy` is held.
  void end(Result why);
};

/// Meets the other ranks, for the context that is current. Throws Failure.
std::shared_ptr<Communicator> make_communicator(const UniqueId& id, int rank, int ranks);

/// What programs hold. A handle that is none, or no longer one, is Failure(invalid_argument).
void* handle_of(const std::shared_ptr<Communicator>& communicator);
std::shared_ptr<Communicator> communicator_of(const void* handle);
void forget(const void* handle);

/// What one communicator is to do: collectives one after another; sends and receives at the same time, those
/// with one rank one after another.
struct Work {
  std::shared_ptr<Communicator> communicator;
  std::vector<Plan> plans;
};

/// Does all of it at the same time, and returns when it is done. A failure ends all communicators of it.
void exchange(std::vector<Work> work);

}  // namespace gpupool::nccl
