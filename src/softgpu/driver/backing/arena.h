// Address range in which a device's ordinary allocations live.
//
// The range is reserved without access; memory becomes usable in 2 MiB chunks as allocations need them, and
// is given back to the operating system when the last allocation of a chunk goes. So an access of a kernel
// that misses every allocation's chunks faults, as on a GPU whose page size is 2 MiB. Large allocations end
// where their last chunk ends, and no other begins there: what goes beyond one of them faults at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/backing/host_store.h"

namespace softgpu::driver {

inline constexpr std::size_t chunk_bytes = std::size_t{2} << 20;  // also the VMM granularity
inline constexpr std::size_t allocation_alignment = 512;          // what NVIDIA's allocator gives

class Arena {
 public:
  // Reserves `span` bytes of address space (a multiple of chunk_bytes). Throws Error(OUT_OF_MEMORY).
  explicit Arena(std::size_t span);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns an address, or 0 if no gap is large enough. `alignment` is a power of two.
  std::uint64_t allocate(std::size_t size, std::size_t alignment = allocation_alignment);
  // Size of the block given back (rounded to the alignment), or 0 if address is not the start of one.
  std::size_t free(std::uint64_t address);

  // Bytes of the chunks in use.
  std::size_t committed();
  // Moves the contents of all memory in use into `store`, which gives them back. Throws Error(OUT_OF_MEMORY)
  // or Error(OPERATING_SYSTEM).
  void park(HostStore& store);

  std::size_t span() const { return span_; }
  std::uint64_t begin() const { return base_; }
  std::uint64_t end() const { return base_ + span_; }

 private:
  using Gaps = std::map<std::size_t, std::size_t>;  // offset -> size
  static Gaps::node_type make_gap();
  void put_gap(std::size_t offset, std::size_t size, Gaps::node_type node) noexcept REQUIRES(mutex_);
  std::optional<std::size_t> take_gap(std::size_t size, std::size_t alignment, Gaps::node_type spare) noexcept
      REQUIRES(mutex_);
  void give_gap(std::size_t offset, std::size_t size, Gaps::node_type node) noexcept REQUIRES(mutex_);
  bool commit(std::size_t offset, std::size_t size) REQUIRES(mutex_);
  void decommit(std::size_t offset, std::size_t size) REQUIRES(mutex_);

  std::uint64_t base_ = 0;  // these two are constant once the range is reserved
  std::size_t span_ = 0;
  gpupool::Mutex mutex_;
  Gaps gaps_ GUARDED_BY(mutex_);
  struct Block {
    std::size_t offset = 0, size = 0;  // with memory
    std::size_t taken = 0;             // of the addresses, from offset on
    Gaps::node_type gap;               // for when it is free again
  };
  std::map<std::size_t, Block> blocks_ GUARDED_BY(mutex_);  // by the offset that was given out
  std::vector<std::uint32_t> users_ GUARDED_BY(mutex_);     // per chunk: allocations that touch it
};

}  // namespace softgpu::driver
