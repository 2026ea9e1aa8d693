// Every address range the driver knows: device, managed, pinned and registered host memory, mapped handles.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace softgpu::driver {

class Context;
class MemoryPool;

enum class MemoryKind { device, managed, host, registered_host, mapped };

struct Allocation {
  std::uint64_t base = 0;
  std::size_t size = 0;
  MemoryKind kind = MemoryKind::device;
  int device = 0;                      // ordinal; for host memory the device of the allocating context
  const Context* context = nullptr;    // identity only, never followed
  std::shared_ptr<MemoryPool> pool{};  // that counts it: it lasts as long, whatever becomes of its handle
  std::uint64_t buffer_id = 0;         // process-wide, never reused; filled in by the table
  std::uint64_t memory_block_id = 0;   // for mapped handles: the physical allocation
  unsigned host_flags = 0;             // CU_MEMHOSTALLOC_* / CU_MEMHOSTREGISTER_*
  std::uint64_t reservation_base = 0;  // mapped: the reserved range it lies in
  std::size_t reservation_size = 0;
  bool accessible = true;  // mapped memory starts without access
  bool writable = true;
  bool synchronous = false;  // what CU_POINTER_ATTRIBUTE_SYNC_MEMOPS was set to

  std::uint64_t end() const { return base + size; }
  bool holds(std::uint64_t address) const { return address - base < size; }
  bool is_host() const { return kind == MemoryKind::host || kind == MemoryKind::registered_host; }
};

class AllocationTable {
 public:
  static AllocationTable& of_process();

  // Adds a range; returns false if it overlaps a known one.
  bool add(Allocation allocation);
  // Removes the range that begins at base; returns what it was.
  std::optional<Allocation> remove(std::uint64_t base);
  std::optional<Allocation> find(std::uint64_t address) const;
  // True if every byte of [address, address + size) is known and accessible. Hot: asked by running kernels.
  bool covers(std::uint64_t address, std::size_t size) const;
  // For the text of errors: what holds the address, else the last freed range that held it, and what lies
  // next to it on both sides.
  struct Neighbours {
    std::optional<Allocation> holds, freed, before, after;
  };
  Neighbours neighbours(std::uint64_t address) const;
  // Changes the access of a mapped range that begins at base.
  bool set_access(std::uint64_t base, bool accessible, bool writable);
  // Of the range that begins at base.
  bool set_synchronous(std::uint64_t base, bool synchronous);
  std::vector<Allocation> owned_by(const Context* context) const;
  std::vector<Allocation> within(std::uint64_t base, std::size_t size) const;

 private:
  bool covers_slowly(std::uint64_t address, std::size_t size) const;
  const Allocation* lookup(std::uint64_t address) const;

  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, Allocation> ranges_;
  std::deque<Allocation> freed_;  // the newest last
  std::uint64_t next_id_ = 1;
  // Grows with every change, so that the per-thread memory of the last hit can be trusted or dropped.
  std::atomic<std::uint64_t> generation_{1};
};

}  // namespace softgpu::driver
