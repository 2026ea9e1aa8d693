// Device memory of the session: one allocator per device, and the posts that back its chunks with memory.
//
// Memory under leases. A chunk of addresses is unmapped -> mapped (MapMemory was posted) -> given up
// (UnmapMemory was posted, or stands in `late` because there was no memory to post it). A block is used ->
// freed, dirty (work may still use it) -> clean (`settled` has passed its mark, or a Barrier was posted
// before it is used again). None of this depends on a lease but MapMemory: memory stays the session's while
// it is parked, at the same addresses, and may be freed meanwhile (worker/residence).
//
// 1. What the allocator says is what the worker will have once it has executed the posts: an allocator
//    changes and its posts go out under one hold of Arena::mutex, so posts stand in the order of the
//    changes. A chunk in `late` is told before any new one is mapped, because its addresses may be the
//    same.
// 2. What is allocated, charged and mapped here never exceeds the limit that was known when it was made. A
//    smaller limit than what is taken refuses what is new and takes nothing away.
// 3. A wish for a smaller share is answered behind every allocation that was made before it, and nothing
//    beyond the new size is made after it: allocator, ToldShare and the answer's place agree
//    (grant_wishes).
// 4. What the worker tells (ToldShare) is written by who reads, who must wait for nobody, and taken over
//    by the next who enters the arena.
// 5. What is coherent, exported or registered at an address ends before the address can be given out
//    again.
// 6. Who allocates waits for a lease without Arena::mutex: MapMemory fails inside (NoLeaseWait), the call
//    enters anew and tries once more. An allocation under HostMirrors::mutex_ waits for none at all: its
//    caller does the same there.
// 7. Arenas are never freed or changed: a call that began in an earlier session finds its own.
//
// Order of locks, each before the next: OpenedMemory::opening_, VirtualMemory::mutex_ or HostMirrors::mutex_,
// Arena::mutex, then one of CoherentMemory::mutex_, HostMemory::mutex_ and that of exported objects, then
// those of the link (connection.h). ToldShare's is last: nothing is called under it. CoherentMemory::mutex_
// and HostMirrors::mutex_ are held while pages are fetched, so whoever has to take one may wait for the
// worker; the thread that reads takes none of these but ToldShare's.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "client/lease/told_share.h"
#include "client/memory/arena_allocator.h"
#include "client/memory/coherent_memory.h"
#include "wire/hello.h"

namespace gpupool::client {

class Connection;
struct WorkerLink;

class DeviceMemory {
 public:
  /// Reserves the arenas' ranges in this process too, so that no host pointer ever looks like a device
  /// pointer. False and `error` when a range is taken.
  /// Those of an earlier session are nobody's from then on, and stay reserved.
  bool open(const std::vector<wire::ArenaDescription>& arenas, std::string& error);

  /// What a worker tells of the share of one of its devices, as it counts them; null: no such device.
  [[nodiscard]] ToldShare* told(const WorkerLink& worker, std::uint32_t device);
  /// Makes do with the shares that the worker wishes for, where what is used allows it, and answers.
  void grant_wishes(const WorkerLink& worker, Connection& connection);

  /// `owner` is the context that the memory goes with, or its pool.
  CUresult allocate(int device, std::uint64_t size, std::uint64_t stream, std::uint64_t owner,
                    CUdeviceptr& out);
  /// Memory that the host uses at the same addresses.
  CUresult allocate_coherent(int device, std::uint64_t size, CoherentMemory::Kind kind, unsigned flags,
                             std::uint64_t owner, CUdeviceptr& out);
  CUresult free(CUdeviceptr address, std::uint64_t stream);

  struct Found {
    int device;
    ArenaAllocator::Block block;
  };
  [[nodiscard]] std::optional<Found> find(CUdeviceptr address);
  /// Whether the address lies in an arena, allocated or not.
  [[nodiscard]] bool owns(std::uint64_t address) const { return device_of(address) >= 0; }
  /// The device whose arena that is; -1: none.
  [[nodiscard]] int device_of(std::uint64_t address) const;
  /// Free and total bytes of the share.
  CUresult info(int device, std::uint64_t& free, std::uint64_t& total);
  CUresult trim(int device);
  /// Gives all memory back that is held for later allocations. False: there was none.
  [[nodiscard]] bool trim_all();
  /// Frees what was allocated for `context`. `of_pools`: also what belongs to the device's pools; by pool it
  /// gets the bytes that had been asked for.
  CUresult free_context(int device, std::uint64_t context,
                        std::map<std::uint64_t, std::uint64_t>* of_pools = nullptr);

  /// For the program's own mappings, see ArenaAllocator. Granularity 0: no such device.
  [[nodiscard]] std::uint64_t granularity(int device) const;
  [[nodiscard]] std::optional<std::uint64_t> set_aside(int device, std::uint64_t size, std::uint64_t aligned,
                                                       std::uint64_t wish);
  void give_back(int device, std::uint64_t address, std::uint64_t size);
  [[nodiscard]] bool charge(int device, std::uint64_t bytes);
  void discharge(int device, std::uint64_t bytes);

  /// Keeps on record what the workers have told of calls that they had no room for.
  void hear_refusals();

  /// Everything up to the mark is finished on the device.
  void settled(int device, std::uint64_t mark);

 private:
  struct Arena {
    int device;
    Mutex mutex;
    ArenaAllocator allocator GUARDED_BY(mutex);
    ToldShare told;
    /// Chunks that were given up, and there was no memory to tell the worker. There is room for all chunks.
    std::vector<ArenaAllocator::Range> late GUARDED_BY(mutex);
  };
  /// Holds the arena's mutex, with what was told taken over.
  class GPUPOOL_ANALYSED(scoped_lockable) InArena {
   public:
    explicit InArena(Arena& arena) ACQUIRE(arena.mutex);
    ~InArena() RELEASE() { arena_.mutex.unlock(); }
    InArena(const InArena&) = delete;
    InArena& operator=(const InArena&) = delete;

   private:
    Arena& arena_;
  };
  [[nodiscard]] Arena* arena(int device);
  static void take_over_told(Arena& arena) REQUIRES(arena.mutex);
  /// CUDA_ERROR_OUT_OF_MEMORY, with the figures on record.
  static CUresult refuse(Arena& arena, std::uint64_t size, std::uint64_t aligned) REQUIRES(arena.mutex);
  /// Tells the worker that chunks are given up.
  static CUresult unmap(Arena& arena, const std::vector<ArenaAllocator::Range>& ranges) REQUIRES(arena.mutex);
  static CUresult tell_late(Arena& arena) REQUIRES(arena.mutex);
  /// What a new block needs of the worker. Precondition: nothing waits for a lease.
  static CUresult prepare(Arena& arena, const ArenaAllocator::Allocation& plan) REQUIRES(arena.mutex);
  CUresult place_once(Arena& arena, std::uint64_t size, std::uint64_t stream, std::uint64_t owner,
                      std::uint64_t aligned, CUdeviceptr& out, bool& fresh);
  CUresult place(int device, std::uint64_t size, std::uint64_t stream, std::uint64_t owner,
                 std::uint64_t aligned, CUdeviceptr& out, bool& fresh);

  /// Of one session. Constant once it is in force, and kept to the end of the process: a call that began in a
  /// session may still be in it when the next one is there.
  struct Arenas {
    std::vector<std::unique_ptr<Arena>> arenas;
    std::vector<wire::ArenaDescription> ranges;
  };
  [[nodiscard]] const Arenas& now() const { return *now_.load(std::memory_order_acquire); }

  // Of all sessions, the first without any; both by the thread that connects.
  std::list<Arenas> all_ = std::list<Arenas>(1);
  std::vector<wire::ArenaDescription> reserved_;
  std::atomic<const Arenas*> now_{&all_.front()};
};

/// One per process, never destroyed.
DeviceMemory& device_memory();

}  // namespace gpupool::client
