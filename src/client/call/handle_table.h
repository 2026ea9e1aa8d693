// The client's handles of one kind, each with an object that stays where it is.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "wire/handle.h"

namespace gpupool::client {

/// Look-ups take no lock. Objects are recycled, never freed: a program that uses a handle while it destroys
/// it gets an error or a stale answer, not a crash.
template <class T, wire::Kind kind>
class HandleTable {
 public:
  /// Indices below `reserved` are left to the caller's own use.
  explicit HandleTable(std::uint32_t reserved = 0) : reserved_(reserved), next_(reserved) {}
  ~HandleTable() {
    for (auto& chunk : chunks_) delete chunk.load();
  }
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  /// A new handle with a default object, or 0 when there are wire::max_handles of them.
  std::uint64_t mint(T*& object) {
    const MutexLock lock(mutex_);
    std::uint32_t index;
    if (!unused_.empty()) {
      index = unused_.back();
      unused_.pop_back();
    } else if (next_ < wire::max_handles) {
      index = next_++;
    } else {
      return 0;
    }
    return open(index, object);
  }

  /// The handle with a fixed index below `reserved`.
  std::uint64_t mint_at(std::uint32_t index, T*& object) {
    const MutexLock lock(mutex_);
    return open(index, object);
  }

  /// Null for a handle that is not alive.
  [[nodiscard]] T* find(std::uint64_t value) const {
    const auto handle = wire::Handle::from(value);
    if (handle.kind != kind || handle.index >= wire::max_handles) return nullptr;
    Chunk* const chunk = chunks_[handle.index / chunk_size].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    Slot& slot = (*chunk)[handle.index % chunk_size];
    if (slot.alive.load(std::memory_order_acquire) != alive_mark(handle.generation)) return nullptr;
    return &slot.object;
  }

  /// From now on the handle is not alive; its index is kept back until recycle(). False when it was not
  /// alive: of two threads that destroy one object, one gets true.
  bool retire(std::uint64_t value) {
    if (find(value) == nullptr) return false;
    const auto handle = wire::Handle::from(value);
    auto expected = alive_mark(handle.generation);
    return slot_of(handle).alive.compare_exchange_strong(expected, 0);
  }

  /// Gives the index of a retired handle to the next mint: to be called once the worker has been told to
  /// forget the old object, or it would refuse the new one.
  void recycle(std::uint64_t value) {
    const auto handle = wire::Handle::from(value);
    const MutexLock lock(mutex_);
    Slot& slot = slot_of(handle);
    if (slot.generation != handle.generation) return;  // forgotten with its session meanwhile
    ++slot.generation;
    unused_.push_back(handle.index);
  }

  /// No handle that was minted is alive. Its index is used again after another forget_all(): until then
  /// whoever is in the middle of a call with it finds the object that it looked up.
  void forget_all() {
    const MutexLock lock(mutex_);
    unused_ = std::move(resting_);
    resting_.clear();
    std::vector<bool> free(next_, false);
    for (const std::uint32_t index : unused_) free[index] = true;
    for (std::uint32_t n = 0; n < next_; ++n) {
      Chunk* const chunk = chunks_[n / chunk_size].load(std::memory_order_relaxed);
      if (chunk == nullptr || free[n]) continue;
      Slot& slot = (*chunk)[n % chunk_size];
      slot.alive.store(0);
      if (n < reserved_) continue;
      ++slot.generation;
      resting_.push_back(n);
    }
  }

  /// Both at once, for a handle that the worker has not heard of.
  void drop(std::uint64_t value) {
    if (retire(value)) recycle(value);
  }

  template <class F>
  void each(F use) {
    std::vector<std::uint64_t> all;
    {
      const MutexLock lock(mutex_);
      for (std::uint32_t n = 0; n < next_; ++n) {
        Chunk* const chunk = chunks_[n / chunk_size].load();
        if (chunk == nullptr) continue;
        Slot& slot = (*chunk)[n % chunk_size];
        if (slot.alive.load() != 0) all.push_back(wire::Handle{kind, slot.generation, n}.value());
      }
    }
    for (const auto value : all) {
      if (T* const object = find(value)) use(value, *object);
    }
  }

 private:
  static constexpr std::uint32_t chunk_size = 1024;
  struct Slot {
    std::atomic<std::uint32_t> alive{0};
    std::uint16_t generation = 0;
    T object{};
  };
  using Chunk = std::array<Slot, chunk_size>;

  static constexpr std::uint32_t alive_mark(std::uint16_t generation) { return 0x10000u | generation; }

  Slot& slot_of(wire::Handle handle) const {
    return (*chunks_[handle.index / chunk_size].load(std::memory_order_acquire))[handle.index % chunk_size];
  }

  std::uint64_t open(std::uint32_t index, T*& object) REQUIRES(mutex_) {
    auto& place = chunks_[index / chunk_size];
    if (place.load(std::memory_order_relaxed) == nullptr) place.store(new Chunk, std::memory_order_release);
    Slot& slot = (*place.load(std::memory_order_relaxed))[index % chunk_size];
    slot.object = T{};
    slot.alive.store(alive_mark(slot.generation), std::memory_order_release);
    object = &slot.object;
    return wire::Handle{kind, slot.generation, index}.value();
  }

  Mutex mutex_;
  std::array<std::atomic<Chunk*>, wire::max_handles / chunk_size> chunks_{};
  std::vector<std::uint32_t> unused_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> resting_ GUARDED_BY(mutex_);  // of the session before this one
  const std::uint32_t reserved_;
  std::uint32_t next_ GUARDED_BY(mutex_);
};

}  // namespace gpupool::client
