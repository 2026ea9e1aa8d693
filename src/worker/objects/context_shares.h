// Device memory that the driver takes for the contexts of the program's own.
#pragma once

#include <cstdint>
#include <map>

#include "worker/lease/memory_account.h"

namespace gpupool::worker {

/// The primary context's is in the account from the start. Green contexts share the memory of their primary
/// one and are not counted. The executing thread alone uses it.
class ContextShares {
 public:
  /// `context` is the client's handle. False over the share.
  [[nodiscard]] bool reserve(std::uint64_t context, MemoryAccount& account) {
    const std::uint64_t bytes = account.context_reserve();
    if (bytes == 0) return true;
    if (!account.reserve_beside(bytes)) return false;
    held_[context] = &account;
    return true;
  }
  /// The context is gone, or has not been made.
  void release(std::uint64_t context) {
    const auto found = held_.find(context);
    if (found == held_.end()) return;
    found->second->release_beside(found->second->context_reserve());
    held_.erase(found);
  }
  void clear() {
    while (!held_.empty()) release(held_.begin()->first);
  }

 private:
  std::map<std::uint64_t, MemoryAccount*> held_;
};

}  // namespace gpupool::worker
