// Finds accesses of two threads of a block to the same byte of shared memory of which at least one writes and
// which nothing orders: no barrier of the block, no synchronisation of the warp, no atomic, volatile or
// mbarrier operation on which one thread has seen what the other did.
//
// Vector clocks, as in FastTrack (Flanagan and Freund, PLDI 2009), with one addition: a barrier of the whole
// block is a single number, below which everything is ordered. Per byte the last write and two reads (of
// different threads) are remembered, so a race with an earlier reader may go unnoticed; what is reported is a
// race.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace softgpu {

class RaceDetector {
 public:
  RaceDetector(uint32_t shared_bytes, uint32_t threads);

  // A block begins: nothing of the one before it counts.
  void reset();
  // Everything that follows is later than what was.
  void advance() { ++now_; }

  struct Access {
    uint32_t thread = 0;          // in the block
    uint32_t offset = 0;          // in shared memory
    uint32_t bytes = 0;           // offset + bytes lies in the block's shared memory
    const void* where = nullptr;  // handed back in reports
    bool writes = false;
    bool strong = false;  // atomic, volatile or with a memory order: two such never race
  };
  struct Race {
    uint32_t offset = 0;  // the first byte
    uint32_t thread = 0;  // whose access came first
    const void* where = nullptr;
    bool wrote = false;
    bool together = false;  // advance() was not called between the two
  };
  // Remembers the access. The first race that it is part of, if there is one.
  std::optional<Race> access(const Access& access);

  // What threads do with an object on which they synchronise (a barrier, an mbarrier, an atomic's address).
  void release(uint64_t object, uint32_t thread);
  void acquire(uint64_t object, uint32_t thread);
  // The lanes of `mask` of the warp that begins with `first_thread` have waited for each other.
  void synchronise_warp(uint32_t first_thread, uint32_t mask);
  // All threads of the block have.
  void synchronise_block() { floor_ = now_++; }

 private:
  struct Mark {
    uint32_t stamp = 0;  // 0: none
    uint16_t thread = 0;
    bool strong = false;
    const void* where = nullptr;
  };
  struct Byte {
    Mark write, read, other_read;
  };
  [[nodiscard]] bool ordered(const Mark& before, uint32_t thread) const;
  [[nodiscard]] bool conflicts(const Mark& before, const Access& now) const;
  uint32_t* row(uint32_t thread);
  std::vector<uint32_t>& clock_of(uint64_t object);

  const uint32_t threads_;
  uint32_t now_ = 1, floor_ = 0;
  std::vector<Byte> bytes_;
  std::vector<uint32_t> known_;  // [thread][other]: up to which stamp the other's accesses are ordered before
  std::unordered_map<uint64_t, std::vector<uint32_t>> objects_;
  std::vector<uint32_t> joined_;
  struct WarpSync {
    uint32_t mask = 0;
    bool unchanged = false;  // nothing has happened in the warp since
  };
  std::vector<WarpSync> last_sync_;
};

}  // namespace softgpu
