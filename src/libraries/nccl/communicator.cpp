#include "libraries/nccl/communicator.h"

#include <map>

#include "libraries/nccl/context.h"

namespace gpupool::nccl {
namespace {

/// Long enough for ranks that load a program first; a rank that never comes is an error in the end.
constexpr auto meeting_time = std::chrono::minutes(10);

struct Registry {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<Communicator>> all;
};

/// Never destroyed: threads may call until the process is gone.
Registry& registry() {
  static auto* const one = new Registry;
  return *one;
}

}  // namespace

void Communicator::require_working() const {
  require(!stop.load(), "the communicator was aborted", invalid_usage);
  const int ended = error.load();
  if (ended != success) throw Failure(static_cast<Result>(ended), "the communicator has ended by an error");
}

void Communicator::end(Result why) {
  int none = success;
  error.compare_exchange_strong(none, why);
  mesh->close();
}

std::shared_ptr<Communicator> make_communicator(const UniqueId& id, int rank, int ranks) {
  const libraries::Driver& gpu = driver();
  auto made = std::make_shared<Communicator>();
  made->rank = rank;
  made->ranks = ranks;
  require_driver(gpu.cuCtxGetCurrent(&made->context), "the current context");
  require_driver(gpu.cuCtxGetDevice(&made->device), "the current device");
  made->mesh = std::make_unique<Mesh>(rank, meet(id, rank, ranks, {Clock::now() + meeting_time}));
  return made;
}

void* handle_of(const std::shared_ptr<Communicator>& communicator) {
  const std::lock_guard lock(registry().mutex);
  registry().all[communicator.get()] = communicator;
  return communicator.get();
}

std::shared_ptr<Communicator> communicator_of(const void* handle) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().all.find(handle);
  require(found != registry().all.end(), "there is no such communicator");
  return found->second;
}

void forget(const void* handle) {
  std::shared_ptr<Communicator> last;  // ends outside of the lock
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().all.find(handle);
  if (found == registry().all.end()) return;
  last = std::move(found->second);
  registry().all.erase(found);
}

}  // namespace gpupool::nccl
