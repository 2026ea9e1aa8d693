// Chooses device addresses: blocks within chunks of an address range. Pure: the caller maps and unmaps the
// chunks.
//
// Memory that was freed while earlier work may still use it is handed out again only behind a barrier; which
// is the case is told by `work`, a number that grows with everything given to the device, and `settled`, the
// last value of it that is known to be finished.
//
// 1. What throws for want of memory has changed nothing: whatever an operation needs is made before its first
//    change, and each piece keeps the node under which it is listed while it is free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace gpupool::client {

class ArenaAllocator {
 public:
  static constexpr std::uint64_t alignment = 512;

  struct Range {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    bool operator==(const Range&) const = default;
  };
  /// What to do before the address may be used, in this order.
  struct Allocation {
    std::uint64_t address = 0;
    std::vector<Range> unmap;
    std::optional<Range> map;
    bool barrier = false;
    bool fresh = false;  ///< never handed out since it was mapped
  };
  /// An allocated block.
  struct Block {
    std::uint64_t address = 0;
    std::uint64_t requested = 0;  ///< bytes asked for
    std::uint64_t size = 0;       ///< bytes set aside
    std::uint64_t owner = 0;      ///< as given to allocate
  };

  /// `granularity`: of mapping, a power of two and a multiple of the alignment.
  ArenaAllocator(std::uint64_t base, std::uint64_t size, std::uint64_t granularity, std::uint64_t limit);

  /// Nothing when the share is used up. `stream` is the stream the memory is meant for in stream-ordered use,
  /// 0 else. `owner` is the caller's mark on the block. `aligned` is a power of two of at most the
  /// granularity; the block fills whole units of it.
  [[nodiscard]] std::optional<Allocation> allocate(std::uint64_t size, std::uint64_t work,
                                                   std::uint64_t stream = 0, std::uint64_t owner = 0,
                                                   std::uint64_t aligned = alignment);

  /// Takes back what allocate() has just given, where the caller could not do what it asked for: the chunk to
  /// map was not mapped.
  void cancel(const Allocation& allocation) noexcept;

  /// Frees the block that starts at `address`; false when none does. Chunks that should be given back go to
  /// `unmap`.
  [[nodiscard]] bool free(std::uint64_t address, std::uint64_t work, std::uint64_t stream,
                          std::vector<Range>& unmap);

  /// Sets addresses aside for the caller's own mappings, at `wish` if that is free; `size` and `aligned` are
  /// multiples of the granularity. Takes nothing from the share. Nothing when no gap is large enough.
  [[nodiscard]] std::optional<std::uint64_t> set_aside(std::uint64_t size, std::uint64_t aligned,
                                                       std::uint64_t wish = 0);
  /// Gives back exactly what one set_aside gave; false when it did not.
  [[nodiscard]] bool give_back(std::uint64_t address, std::uint64_t size);
  /// Takes bytes from the share for memory that is not in a block; false when they do not fit. Free chunks
  /// that had to make room go to `unmap`.
  [[nodiscard]] bool charge(std::uint64_t bytes, std::vector<Range>& unmap);
  void discharge(std::uint64_t bytes) { charged_ -= bytes; }

  /// Work up to `work` is finished on the device.
  void settled(std::uint64_t work);
  /// What the worker takes of the share for objects whose size is not known here; at most the share.
  void set_beside(std::uint64_t bytes) { beside_ = std::min(bytes, limit_); }
  /// More than the addresses is no more than the addresses.
  void set_limit(std::uint64_t bytes) { limit_ = std::min(bytes, size_); }

  /// The allocated block that contains the address.
  [[nodiscard]] std::optional<Block> find(std::uint64_t address) const;
  [[nodiscard]] bool owns(std::uint64_t address) const { return address >= base_ && address - base_ < size_; }
  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  /// Bytes in allocated blocks, and charged.
  [[nodiscard]] std::uint64_t used() const { return used_ + charged_ + beside_; }
  /// Bytes of the share that are taken, also by free chunks.
  [[nodiscard]] std::uint64_t taken() const { return mapped_ + charged_ + beside_; }
  /// Bytes in chunks.
  [[nodiscard]] std::uint64_t mapped() const { return mapped_; }
  /// The largest size that allocate() has room for now.
  [[nodiscard]] std::uint64_t largest_free() const;
  /// The share that would have room for a block of `size` beside what is used.
  [[nodiscard]] std::uint64_t needed_for(std::uint64_t size, std::uint64_t aligned = alignment) const;
  /// How many chunks there are, and so the most that can be given to unmap.
  [[nodiscard]] std::size_t chunks() const { return chunks_.size(); }
  /// Everything allocated.
  [[nodiscard]] std::vector<Block> blocks() const;
  /// Takes all free chunks away from the cache.
  [[nodiscard]] std::vector<Range> trim();
  /// Empty when all invariants hold; else what is wrong. For tests.
  [[nodiscard]] const char* inconsistency() const;

 private:
  /// (size, address) of unused pieces: best fit first.
  using Listing = std::set<std::pair<std::uint64_t, std::uint64_t>>;
  struct Piece {
    std::uint64_t size = 0;
    std::uint64_t requested = 0;
    bool used = false;
    std::uint64_t freed_at = 0;  ///< `work` when it was freed; 0 = clean
    std::uint64_t freed_on = 0;  ///< stream, 0 = not stream-ordered
    bool mixed = false;          ///< merged from pieces freed on different streams
    std::uint64_t owner = 0;     ///< while it is used
    Listing::node_type entry;    ///< while it is used: of the list of free pieces, for when it is free again
  };
  using Pieces = std::map<std::uint64_t, Piece>;
  struct Chunk {
    std::uint64_t size = 0;
    Pieces pieces;  ///< empty: addresses set aside
  };
  using Chunks = std::map<std::uint64_t, Chunk>;

  [[nodiscard]] bool dirty(const Piece& piece) const { return piece.freed_at > settled_; }
  /// A piece that is not in a chunk yet. Throws std::bad_alloc.
  [[nodiscard]] static Pieces::node_type make_piece();
  void list(std::uint64_t at, Piece& piece) noexcept;
  void unlist(std::uint64_t at, Piece& piece) noexcept;
  /// Splits the free, unlisted piece at `at`: `made` becomes what lies `bytes` behind its beginning, unlisted
  /// too.
  static void split(Chunk& chunk, std::uint64_t at, std::uint64_t bytes, Pieces::node_type made) noexcept;
  void take(Chunk& chunk, std::uint64_t at, std::uint64_t size, std::uint64_t requested, std::uint64_t owner,
            Pieces::node_type rest) noexcept;
  void merge(Chunk& chunk, std::uint64_t at) noexcept;
  [[nodiscard]] bool fits(std::uint64_t more) const { return more <= limit_ && taken() <= limit_ - more; }
  [[nodiscard]] std::optional<std::uint64_t> find_gap(std::uint64_t size) const;
  /// Of addresses, without what trim() would take away.
  [[nodiscard]] std::uint64_t largest_gap() const;
  /// `unmap` has room for one more.
  void drop_chunk(Chunks::iterator chunk, std::vector<Range>& unmap) noexcept;
  [[nodiscard]] Chunks::iterator chunk_of(std::uint64_t address);

  std::uint64_t base_, size_, granularity_, limit_;
  std::uint64_t used_ = 0, mapped_ = 0, idle_ = 0, settled_ = 0, charged_ = 0, beside_ = 0;
  Chunks chunks_;
  Listing free_;
};

}  // namespace gpupool::client
