#include "client/call/routing.h"

#include <map>

#include "base/mutex.h"
#include "client/call/current_context.h"
#include "client/call/refuse.h"
#include "client/process/counters.h"
#include "client/process/session_belongings.h"

namespace gpupool::client {
namespace {

using wire::Kind;

struct PhysicalPlaces {
  Mutex mutex;
  std::map<std::uint64_t, int> devices GUARDED_BY(mutex);
};
PhysicalPlaces& physical_places() {
  static PhysicalPlaces& all = kept_for_session<PhysicalPlaces>([](PhysicalPlaces& kept) {
    const MutexLock lock(kept.mutex);
    kept.devices.clear();
  });
  return all;
}

}  // namespace

std::uint64_t Route::wire_context_elsewhere() const {
  std::uint64_t handle = context;
  ForWorker(worker).context(handle);
  return handle;
}

WorkerLink& worker_of_device(int device) {
  Runtime& r = runtime();
  for (unsigned n = 1; n < r.workers(); ++n) {
    if (r.worker(n).has_device(device)) return r.worker(n);
  }
  return r.worker();
}

WorkerLink& worker_of_context(std::uint64_t context) {
  return runtime().several() ? worker_of_device(device_of_context(context)) : runtime().worker();
}

WorkerLink& worker_of_stream(std::uint64_t stream) {
  if (!runtime().several()) return runtime().worker();
  const std::uint64_t context = stream <= 2 ? current_context() : context_of(Kind::stream, stream);
  return worker_of_context(context);
}

std::optional<unsigned> worker_of_object(Kind kind, std::uint64_t value) {
  const std::uint64_t context = value <= 2 ? 0 : context_of(kind, value);
  if (context == 0) return std::nullopt;
  return worker_of_context(context).index;
}

std::optional<unsigned> worker_of_address(std::uint64_t address) {
  if (const int device = device_of_address(address); device >= 0) return worker_of_device(device).index;
  return worker_of_global(address, worker_of_context(current_context()).index);
}

std::uint64_t context_on(const WorkerLink& worker) {
  const std::uint64_t context = current_context();
  return context != 0 && &worker_of_context(context) == &worker ? context
                                                                : primary_context(worker.first_device);
}

void Owners::add(const WorkerLink& worker, std::uint64_t context) {
  if (worker_ < 0) context_ = context;
  mixed_ = mixed_ || (worker_ >= 0 && worker_ != static_cast<int>(worker.index));
  worker_ = static_cast<int>(worker.index);
}

void Owners::handle(Kind kind, std::uint64_t value) {
  if (kind == Kind::allocation) {
    PhysicalPlaces& places = physical_places();
    int found = -1;
    {
      const MutexLock lock(places.mutex);
      if (const auto at = places.devices.find(value); at != places.devices.end()) found = at->second;
    }
    if (found >= 0) device(found);
    return;
  }
  if (value <= 2) return;  // none, or one of the special streams
  const std::uint64_t context = context_of(kind, value);
  if (context != 0) add(worker_of_context(context), context);
}

void Owners::device(int ordinal) {
  add(worker_of_device(ordinal), primary_context(ordinal));
}

void Owners::address(std::uint64_t value) {
  const auto worker = worker_of_address(value);
  if (!worker) return;
  const int device = device_of_address(value);
  if (memory_ < 0) {
    memory_context_ = primary_context(device >= 0 ? device : runtime().worker(*worker).first_device.load());
  }
  mixed_ = mixed_ || (memory_ >= 0 && memory_ != static_cast<int>(*worker));
  memory_ = static_cast<int>(*worker);
}

CUresult Owners::decide(MessageId message, bool goes_to_memory, std::uint64_t context,
                        std::optional<Route>& out) {
  const char* const name = public_name(static_cast<std::uint16_t>(message));
  if (mixed_ || (worker_ >= 0 && memory_ >= 0 && worker_ != memory_)) {
    return refuse_mixed(name, "what it names is on several nodes");
  }
  const auto given = static_cast<int>(worker_of_context(context).index);
  int worker = worker_ >= 0 ? worker_ : memory_;
  if (worker < 0) worker = given;
  std::uint64_t sent_in = context;
  if (context != 0 && worker != given) sent_in = worker_ >= 0 ? context_ : memory_context_;
  const bool strays = worker_ < 0 && memory_ >= 0 && memory_ != given && context != 0;
  if (strays && !goes_to_memory) return refuse_mixed(name, "its memory is on another node than its stream");
  out.emplace(runtime().worker(static_cast<unsigned>(worker)), sent_in, strays);
  return CUDA_SUCCESS;
}

void ForWorker::context(std::uint64_t& handle) const {
  const auto known = wire::Handle::from(handle);
  if (known.kind != Kind::context || known.index >= primary_contexts) return;
  if (static_cast<int>(known.index) >= first_)
    handle = primary_context(static_cast<int>(known.index) - first_);
}

bool from_worker(const WorkerLink& worker, std::int32_t& device) {
  if (device < 0 || device >= worker.devices) return false;
  device += worker.first_device;
  return true;
}

CUresult refuse_mixed(const char* function, const char* reason) {
  return static_cast<CUresult>(refuse(function, reason));
}

void remember_physical(std::uint64_t memory, int device) {
  const MutexLock lock(physical_places().mutex);
  physical_places().devices[memory] = device;
}

void forget_physical(std::uint64_t memory) {
  const MutexLock lock(physical_places().mutex);
  physical_places().devices.erase(memory);
}

}  // namespace gpupool::client
