#include "client/memory/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/routing.h"
#include "client/lease/refused_memory.h"
#include "client/memory/exported_objects.h"
#include "client/memory/host_memory.h"
#include "client/process/main_wait.h"
#include "client/session/attach_again.h"
#include "client/session/session_hooks.h"
#include "client/session/worker_link.h"

namespace gpupool::client {
namespace {

/// Stream-ordered memory is marked with its pool, other memory with its context.
bool is_pool(std::uint64_t owner) {
  return wire::Handle::from(owner).kind == wire::Kind::memory_pool;
}

CUresult say_unmap(int device, const ArenaAllocator::Range& range) {
  messages::UnmapMemory m;
  m.device = device;
  m.address = range.address;
  m.size = range.size;
  return post(m, any_context);
}

/// Before a program is told that its share is used up: it may have grown, and whatever the worker has
/// to say comes before its answer.
void hear_of_share(int device) {
  if (in_host_function() || !runtime().connected()) return;
  constexpr int patience_ms = 2000;
  Reply reply;
  const Outgoing ping{static_cast<std::uint16_t>(wire::Control::ping), 0};
  Connection* const connection = worker_of_device(device).connection.load(std::memory_order_acquire);
  static_cast<void>(connection->ask_within(ping, [](wire::Writer&) {}, reply, patience_ms));
}

}  // namespace

bool DeviceMemory::open(const std::vector<wire::ArenaDescription>& arenas, std::string& error) {
  const auto same = [](const auto& one) {
    return [&one](const auto& other) { return other.base == one.base && other.size == one.size; };
  };
  std::list<Arenas> opened(1);
  Arenas& made = opened.front();
  for (const auto& range : arenas) {
    if (range.base == 0 || range.size == 0 || range.granularity < ArenaAllocator::alignment ||
        (range.granularity & (range.granularity - 1)) != 0 || range.base % range.granularity != 0 ||
        range.size % range.granularity != 0 || range.base + range.size < range.base) {
      error = "the GPU worker offers an impossible address range";
      return false;
    }
    if (std::any_of(made.ranges.begin(), made.ranges.end(), [&](const auto& other) {
          return range.base < other.base + other.size && other.base < range.base + range.size;
        })) {
      error = "the GPU worker offers an address range twice";
      return false;
    }
    // What an attempt to connect, or an earlier session that is over, has reserved is this process's already.
    const bool ours = std::any_of(reserved_.begin(), reserved_.end(), same(range));
    void* const wish = reinterpret_cast<void*>(range.base);
    void* const got =
        mmap(wish, range.size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (ours ? MAP_FIXED : MAP_FIXED_NOREPLACE), -1, 0);
    if (got != wish) {
      if (got != MAP_FAILED) munmap(got, range.size);
      error = "the device's address range is taken in this process";
      return false;
    }
    if (!ours) reserved_.push_back(range);
    made.ranges.push_back(range);
    made.arenas.push_back(std::unique_ptr<Arena>(
        new Arena{static_cast<int>(made.arenas.size()),
                  {},
                  ArenaAllocator(range.base, range.size, range.granularity, range.limit),
                  ToldShare(range.limit),
                  {}}));
  }
  all_.splice(all_.end(), opened);
  now_.store(&made, std::memory_order_release);
  return true;
}

DeviceMemory::Arena* DeviceMemory::arena(int device) {
  const Arenas& all = now();
  return device >= 0 && static_cast<std::size_t>(device) < all.arenas.size()
             ? all.arenas[static_cast<std::size_t>(device)].get()
             : nullptr;
}

DeviceMemory::InArena::InArena(Arena& arena) : arena_(arena) {
  {
    const MainWait wait;  // the one who has the mutex may wait for the worker
    arena.mutex.lock();
  }
  take_over_told(arena);
}

void DeviceMemory::take_over_told(Arena& arena) {
  if (const auto now = arena.told.take_changes()) {
    arena.allocator.set_limit(now->limit);
    arena.allocator.set_beside(now->beside);
  }
}

ToldShare* DeviceMemory::told(const WorkerLink& worker, std::uint32_t device) {
  // While a session is being connected the worker's place is not known yet.
  if (device >= static_cast<std::uint32_t>(std::max(worker.devices.load(), 0))) return nullptr;
  Arena* const place = arena(worker.first_device + static_cast<int>(device));
  return place == nullptr ? nullptr : &place->told;
}

void DeviceMemory::grant_wishes(const WorkerLink& worker, Connection& connection) {
  for (int n = 0; n < worker.devices; ++n) {
    const int device = worker.first_device + n;
    Arena* const at = arena(device);
    if (at == nullptr) return;
    Arena& place = *at;
    std::uint32_t answer = 0;
    {
      const InArena inside(place);
      const auto wish = place.told.wish();
      if (!wish) continue;
      // What is used stays, so also a wish that cannot be granted learns how much that is.
      if (place.allocator.taken() > wish->limit) static_cast<void>(unmap(place, place.allocator.trim()));
      place.told.settle(*wish, place.allocator.taken() <= wish->limit);
      answer = wish->number;
    }
    // Behind what was allocated until now, and nothing beyond the new size comes any more.
    const Outgoing out{static_cast<std::uint16_t>(wire::Control::limit_answered), 0};
    static_cast<void>(
        connection.post(out, [&](wire::Writer& writer) { wire::LimitAnswered{answer}.encode(writer); }));
  }
}

CUresult DeviceMemory::allocate(int device, std::uint64_t size, std::uint64_t stream, std::uint64_t owner,
                                CUdeviceptr& out) {
  bool fresh = false;
  return place(device, size, stream, owner, ArenaAllocator::alignment, out, fresh);
}

CUresult DeviceMemory::allocate_coherent(int device, std::uint64_t size, CoherentMemory::Kind kind,
                                         unsigned flags, std::uint64_t owner, CUdeviceptr& out) {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  CUdeviceptr address = 0;
  bool fresh = false;
  // Of no stream: its pages are cleared beside all streams, so nothing may still use them.
  if (const CUresult bad = place(device, size, 0, owner, page, address, fresh); bad != CUDA_SUCCESS)
    return bad;
  const CUresult result = coherent_memory().add({address, size, device, kind, flags}, fresh);
  if (result == CUDA_SUCCESS) {
    out = address;
  } else {
    static_cast<void>(free(address, 0));
  }
  return result;
}

CUresult DeviceMemory::unmap(Arena& arena, const std::vector<ArenaAllocator::Range>& ranges) {
  CUresult first = CUDA_SUCCESS;
  for (const auto& range : ranges) {
    const CUresult result = say_unmap(arena.device, range);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) arena.late.push_back(range);
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

CUresult DeviceMemory::tell_late(Arena& arena) {
  while (!arena.late.empty()) {
    if (const CUresult bad = say_unmap(arena.device, arena.late.back()); bad == CUDA_ERROR_OUT_OF_MEMORY)
      return bad;
    arena.late.pop_back();
  }
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::prepare(Arena& arena, const ArenaAllocator::Allocation& plan) {
  if (const CUresult bad = unmap(arena, plan.unmap); bad != CUDA_SUCCESS) return bad;
  if (plan.map) {
    messages::MapMemory m;
    m.device = arena.device;
    m.address = plan.map->address;
    m.size = plan.map->size;
    if (const CUresult bad = post(m, any_context); bad != CUDA_SUCCESS) return bad;
  }
  if (!plan.barrier) return CUDA_SUCCESS;
  messages::Barrier m;
  m.device = arena.device;
  return post(m, any_context);
}

CUresult DeviceMemory::place_once(Arena& arena, std::uint64_t size, std::uint64_t stream, std::uint64_t owner,
                                  std::uint64_t aligned, CUdeviceptr& out, bool& fresh) {
  const InArena inside(arena);
  const NoLeaseWait no_wait;
  const auto plan_it = [&]() REQUIRES(arena.mutex) -> std::optional<ArenaAllocator::Allocation> {
    arena.late.reserve(arena.late.size() + arena.allocator.chunks() + 1);
    return arena.allocator.allocate(size, runtime().work_mark(), stream, owner, aligned);
  };
  if (const CUresult bad = tell_late(arena); bad != CUDA_SUCCESS) return bad;
  auto plan = plan_it();
  if (!plan || plan->address == 0) {
    if (plan) static_cast<void>(unmap(arena, plan->unmap));
    {
      const MainWait wait;
      const MutexUnlock outside(arena.mutex);
      hear_of_share(arena.device);
    }
    take_over_told(arena);
    plan = plan_it();
  }
  if (!plan) return refuse(arena, size, aligned);
  const CUresult result = prepare(arena, *plan);
  if (plan->address == 0) return result != CUDA_SUCCESS ? result : refuse(arena, size, aligned);
  if (result != CUDA_SUCCESS) {
    arena.allocator.cancel(*plan);
    return result;
  }
  out = plan->address;
  fresh = plan->fresh;
  refused_memory().served(arena.device, size);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::place(int device, std::uint64_t size, std::uint64_t stream, std::uint64_t owner,
                             std::uint64_t aligned, CUdeviceptr& out, bool& fresh) {
  Arena* const arena = this->arena(device);
  if (arena == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult result = place_once(*arena, size, stream, owner, aligned, out, fresh);
  if (result != CUDA_ERROR_DEVICE_UNAVAILABLE) return result;
  // The lease ended since this call entered: the next one is waited for while others may use the arena.
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  return place_once(*arena, size, stream, owner, aligned, out, fresh);
}

CUresult DeviceMemory::refuse(Arena& arena, std::uint64_t size, std::uint64_t aligned) {
  const RefusedMemory refused{arena.device,
                              size,
                              arena.allocator.limit(),
                              arena.allocator.used(),
                              arena.allocator.largest_free(),
                              arena.allocator.needed_for(size, aligned)};
  const MutexUnlock outside(arena.mutex);
  refused_memory().keep(refused);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void DeviceMemory::hear_refusals() {
  for (const auto& arena : now().arenas) {
    const auto asked = arena->told.take_refusal();
    if (!asked) continue;
    Arena& place = *arena;
    const InArena inside(place);
    static_cast<void>(refuse(place, *asked, 1));
  }
}

CUresult DeviceMemory::free(CUdeviceptr address, std::uint64_t stream) {
  const int device = device_of(address);
  Arena* const place = arena(device);
  if (place == nullptr) return CUDA_ERROR_INVALID_VALUE;
  coherent_memory().drop(address);  // before the addresses can be given to somebody else
  end_export(ExportKind::memory, device, address);
  const MutexLock lock(place->mutex);
  std::vector<ArenaAllocator::Range> ranges;
  if (!place->allocator.free(address, runtime().work_mark(), stream, ranges)) return CUDA_ERROR_INVALID_VALUE;
  return unmap(*place, ranges);
}

std::optional<DeviceMemory::Found> DeviceMemory::find(CUdeviceptr address) {
  const int device = device_of(address);
  Arena* const place = arena(device);
  if (place == nullptr) return std::nullopt;
  const MutexLock lock(place->mutex);
  if (const auto block = place->allocator.find(address)) return Found{device, *block};
  return std::nullopt;
}

int DeviceMemory::device_of(std::uint64_t address) const {
  const auto& ranges = now().ranges;
  for (std::size_t n = 0; n < ranges.size(); ++n) {
    if (address >= ranges[n].base && address - ranges[n].base < ranges[n].size) return static_cast<int>(n);
  }
  return -1;
}

CUresult DeviceMemory::info(int device, std::uint64_t& free, std::uint64_t& total) {
  Arena* const place = arena(device);
  if (place == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  worker_of_device(device)
      .connection.load(std::memory_order_acquire)
      ->read_arrived();  // a share that was resized since is told there
  const InArena inside(*place);
  total = place->allocator.limit();
  const std::uint64_t used = place->allocator.used();
  free = total > used ? total - used : 0;
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::trim(int device) {
  Arena* const place = arena(device);
  if (place == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const MutexLock lock(place->mutex);
  return unmap(*place, place->allocator.trim());
}

bool DeviceMemory::trim_all() {
  bool some = false;
  for (const auto& arena : now().arenas) {
    Arena& place = *arena;
    const MutexLock lock(place.mutex);
    const std::vector<ArenaAllocator::Range> ranges = place.allocator.trim();
    some = some || !ranges.empty();
    static_cast<void>(unmap(place, ranges));
  }
  return some;
}

CUresult DeviceMemory::free_context(int device, std::uint64_t context,
                                    std::map<std::uint64_t, std::uint64_t>* of_pools) {
  Arena* const place = arena(device);
  if (place == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const MutexLock lock(place->mutex);
  std::vector<ArenaAllocator::Range> ranges;
  for (const auto& block : place->allocator.blocks()) {
    const bool of_pool = of_pools != nullptr && is_pool(block.owner);
    if (block.owner != context && !of_pool) continue;
    if (of_pool) (*of_pools)[block.owner] += block.requested;
    host_memory().forget(block.address);
    coherent_memory().drop(block.address);
    end_export(ExportKind::memory, device, block.address);
    static_cast<void>(place->allocator.free(block.address, runtime().work_mark(), 0, ranges));
  }
  return unmap(*place, ranges);
}

std::uint64_t DeviceMemory::granularity(int device) const {
  const auto& ranges = now().ranges;
  return device >= 0 && static_cast<std::size_t>(device) < ranges.size()
             ? ranges[static_cast<std::size_t>(device)].granularity
             : 0;
}

std::optional<std::uint64_t> DeviceMemory::set_aside(int device, std::uint64_t size, std::uint64_t aligned,
                                                     std::uint64_t wish) {
  Arena* const place = arena(device);
  if (place == nullptr) return std::nullopt;
  const MutexLock lock(place->mutex);
  return place->allocator.set_aside(size, aligned, wish);
}

void DeviceMemory::give_back(int device, std::uint64_t address, std::uint64_t size) {
  Arena* const place = arena(device);
  if (place == nullptr) return;
  const MutexLock lock(place->mutex);
  static_cast<void>(place->allocator.give_back(address, size));
}

bool DeviceMemory::charge(int device, std::uint64_t bytes) {
  Arena* const place = arena(device);
  if (place == nullptr) return false;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt > 0) hear_of_share(device);
    const InArena inside(*place);
    std::vector<ArenaAllocator::Range> ranges;
    const bool fits = place->allocator.charge(bytes, ranges);
    if (unmap(*place, ranges) != CUDA_SUCCESS) {
      if (fits) place->allocator.discharge(bytes);
      return false;
    }
    if (fits) {
      refused_memory().served(device, bytes);
      return true;
    }
    if (attempt > 0) static_cast<void>(refuse(*place, bytes, ArenaAllocator::alignment));
  }
  return false;
}

void DeviceMemory::discharge(int device, std::uint64_t bytes) {
  Arena* const place = arena(device);
  if (place == nullptr) return;
  const MutexLock lock(place->mutex);
  place->allocator.discharge(bytes);
}

void DeviceMemory::settled(int device, std::uint64_t mark) {
  Arena* const place = arena(device);
  if (place == nullptr) return;
  const MutexLock lock(place->mutex);
  place->allocator.settled(mark);
}

int device_of_address(std::uint64_t address) {
  return device_memory().device_of(address);
}

DeviceMemory& device_memory() {
  static DeviceMemory* const only = new DeviceMemory;
  return *only;
}

bool open_device_memory(const std::vector<wire::ArenaDescription>& arenas, std::string& error) {
  return device_memory().open(arenas, error);
}

void hear_refusals() {
  device_memory().hear_refusals();
}

void grant_wishes(const WorkerLink& worker, Connection& connection) {
  device_memory().grant_wishes(worker, connection);
}

}  // namespace gpupool::client
