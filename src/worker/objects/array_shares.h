// Which part of the memory share each array of the session holds.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

#include "worker/lease/memory_account.h"

namespace gpupool::worker {

/// By the client's handle. Not thread-safe: the executing thread alone uses it.
class ArrayShares {
 public:
  /// The bytes have been reserved in the account; they go with the context.
  void add(std::uint64_t handle, MemoryAccount& account, std::uint64_t bytes, CUcontext context) {
    held_[handle] = {&account, bytes, context};
  }
  /// A level of a mipmapped array or a plane of an array: it goes with its parent.
  void add_part(std::uint64_t parent, std::uint64_t part) { parts_[part] = parent; }
  [[nodiscard]] bool is_part(std::uint64_t handle) const { return parts_.contains(handle); }
  /// Calls `forget(part)` for each part of an array that ends.
  template <class F>
  void release_parts(std::uint64_t parent, F forget) {
    std::erase_if(parts_, [&](const auto& entry) {
      if (entry.second == parent) forget(entry.first);
      return entry.second == parent;
    });
  }
  void release(std::uint64_t handle) {
    const auto found = held_.find(handle);
    if (found == held_.end()) return;
    found->second.account->release_beside(found->second.bytes);
    held_.erase(found);
  }
  void release_context(CUcontext context) {
    release_if([context](const Held& held) { return held.context == context; });
  }
  void clear() {
    release_if([](const Held&) { return true; });
    parts_.clear();
  }

 private:
  struct Held {
    MemoryAccount* account;
    std::uint64_t bytes;
    CUcontext context;
  };
  template <class F>
  void release_if(F chosen) {
    std::erase_if(held_, [&](const auto& entry) {
      if (!chosen(entry.second)) return false;
      entry.second.account->release_beside(entry.second.bytes);
      return true;
    });
  }
  std::map<std::uint64_t, Held> held_;
  std::map<std::uint64_t, std::uint64_t> parts_;  ///< part -> parent
};

}  // namespace gpupool::worker
