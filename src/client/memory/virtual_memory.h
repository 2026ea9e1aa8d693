// The program's own virtual memory management: reserved addresses, physical memory, and mappings between
// them.
//
// All checks are made here, in the driver's terms, so that the messages to the worker need no answer.
//
// 1. What the books say is what the worker will have once it has executed the posts, which go out under the
//    same hold of mutex_ as the change.
// 2. Nobody waits for a lease under mutex_: other calls take it that need none. An operation that needs one
//    fails without it and leaves no trace, so that its caller can wait for the lease and try once more.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "client/call/handle_table.h"
#include "protocol/export_ticket.h"

namespace gpupool::client {

/// Memory that another process gave, or this one itself.
struct ImportedMemory {
  int device = 0;
  std::uint64_t size = 0;                ///< of the physical memory
  std::uint64_t offset = 0, length = 0;  ///< of the block in it
  std::uint64_t pool = 0;                ///< the giver's handle of the block's pool; 0: none
  bool counted = false;                  ///< takes no more of the share
};

/// The parts of the books that ask the arena and tell the worker. Those that need a lease (create, map,
/// set_access) fail with CUDA_ERROR_DEVICE_UNAVAILABLE where there is none, and wait for none.
class VirtualMemoryHost {
 public:
  virtual ~VirtualMemoryHost() = default;
  virtual std::uint64_t granularity(int device) = 0;
  virtual std::optional<std::uint64_t> set_aside(int device, std::uint64_t size, std::uint64_t aligned,
                                                 std::uint64_t wish) = 0;
  virtual void give_back(int device, std::uint64_t address, std::uint64_t size) = 0;
  virtual bool charge(int device, std::uint64_t bytes) = 0;
  virtual void discharge(int device, std::uint64_t bytes) = 0;
  virtual CUresult create(std::uint64_t memory, int device, std::uint64_t size,
                          const CUmemAllocationProp& properties) = 0;
  /// Waits for the worker. The worker has nothing under `memory` when this fails.
  virtual CUresult import(std::uint64_t memory, ExportKind kind, std::span<const std::byte> ticket,
                          ImportedMemory& out) = 0;
  virtual CUresult release(std::uint64_t memory) = 0;
  virtual CUresult map(int place, std::uint64_t address, std::uint64_t size, std::uint64_t offset,
                       std::uint64_t memory) = 0;
  virtual CUresult unmap(int place, std::uint64_t address, std::uint64_t size) = 0;
  virtual CUresult set_access(int place, std::uint64_t address, std::uint64_t size, unsigned access) = 0;
};

/// Thread-safe.
class VirtualMemory {
 public:
  explicit VirtualMemory(VirtualMemoryHost& host) : host_(host) {}

  /// `place` is the device whose arena the addresses come from.
  CUresult reserve(int place, std::uint64_t size, std::uint64_t aligned, std::uint64_t wish,
                   std::uint64_t& out);
  CUresult free(std::uint64_t address, std::uint64_t size);
  CUresult create(std::uint64_t size, const CUmemAllocationProp& properties, std::uint64_t& out);
  CUresult import(ExportKind kind, std::span<const std::byte> ticket, std::uint64_t& out,
                  ImportedMemory& imported);
  CUresult release(std::uint64_t memory);
  /// Whether the program has a handle of this value.
  [[nodiscard]] bool has(std::uint64_t memory);
  CUresult map(std::uint64_t address, std::uint64_t size, std::uint64_t offset, std::uint64_t memory);
  CUresult unmap(std::uint64_t address, std::uint64_t size);
  /// Access of the device that the memory is on.
  CUresult set_access(std::uint64_t address, std::uint64_t size, int device, CUmemAccess_flags access);
  /// The handle behind an address, with one more reference.
  CUresult retain(std::uint64_t address, std::uint64_t& out);
  CUresult properties(std::uint64_t memory, CUmemAllocationProp& out);

  struct Found {
    std::uint64_t reservation = 0, reservation_size = 0;
    std::uint64_t mapping = 0, mapping_size = 0;
    std::uint64_t memory = 0;
    int device = 0;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };
  /// The mapping that holds the address.
  [[nodiscard]] std::optional<Found> find(std::uint64_t address);
  /// The session is over (session_belongings.h).
  void forget();

 private:
  struct Physical {
    std::uint64_t size = 0;
    CUmemAllocationProp properties{};
    int references = 0;
    int mappings = 0;
    bool counted = true;  ///< against the share, by this handle
  };
  struct Reservation {
    std::uint64_t size = 0;
    int place = 0;
    std::uint64_t mapped = 0;
  };
  struct Mapping {
    std::uint64_t size = 0;
    std::uint64_t memory = 0;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };
  using Reservations = std::map<std::uint64_t, Reservation>;
  using Mappings = std::map<std::uint64_t, Mapping>;

  Reservations::iterator reservation_of(std::uint64_t address, std::uint64_t size) REQUIRES(mutex_);
  /// The first mapping of a range that consists of whole ones, else end().
  Mappings::iterator whole_mappings(std::uint64_t address, std::uint64_t size) REQUIRES(mutex_);
  CUresult forget_if_unused(std::uint64_t memory, Physical& physical) REQUIRES(mutex_);

  VirtualMemoryHost& host_;
  Mutex mutex_;
  Reservations reservations_ GUARDED_BY(mutex_);
  Mappings mappings_ GUARDED_BY(mutex_);
  HandleTable<Physical, wire::Kind::allocation> physical_;  // what is behind a handle: under mutex_
};

/// One per process, never destroyed.
VirtualMemory& virtual_memory();

}  // namespace gpupool::client
