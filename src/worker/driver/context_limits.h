// Device memory that a context sets aside because the program asked for more of it than usual: the heap of
// kernels' malloc, the buffer of their printf, the stacks of all threads that the device can hold at once.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "worker/lease/memory_account.h"

namespace gpupool::worker {

/// The usual size belongs to the context's own overhead. A driver need not give back what a context had once,
/// so the most that was asked for counts until the context goes. The executing thread alone uses it.
class ContextLimits {
 public:
  [[nodiscard]] static bool takes_memory(CUlimit limit) {
    return limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ||
           limit == CU_LIMIT_STACK_SIZE;
  }
  /// What `value` of a limit takes where it is taken `times`; the greatest number where that is too many.
  [[nodiscard]] static std::uint64_t bytes(std::uint64_t value, std::uint64_t times) {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    return times != 0 && value > most / times ? most : value * times;
  }

  /// Reserves what `wanted` takes more, in bytes. `usual` is what the context had at first. False over the
  /// share.
  [[nodiscard]] bool reserve(CUcontext context, CUlimit limit, std::uint64_t usual, std::uint64_t wanted,
                             MemoryAccount& account) {
    Held& held = held_.try_emplace({context, limit}, Held{usual, 0, &account}).first->second;
    const std::uint64_t more = wanted > held.usual + held.bytes ? wanted - held.usual - held.bytes : 0;
    if (more != 0 && !account.reserve_beside(more)) return false;
    held.bytes += more;
    held.last = more;
    return true;
  }
  /// The driver refused what was reserved last.
  void undo(CUcontext context, CUlimit limit) {
    const auto found = held_.find({context, limit});
    if (found == held_.end()) return;
    const std::uint64_t last = std::exchange(found->second.last, 0);
    found->second.account->release_beside(last);
    found->second.bytes -= last;
  }
  void release_context(CUcontext context) {
    std::erase_if(held_, [context](const auto& entry) {
      if (entry.first.first != context) return false;
      entry.second.account->release_beside(entry.second.bytes);
      return true;
    });
  }
  void clear() {
    for (const auto& [key, held] : held_) held.account->release_beside(held.bytes);
    held_.clear();
  }

 private:
  struct Held {
    std::uint64_t usual;
    std::uint64_t bytes;
    MemoryAccount* account;
    std::uint64_t last = 0;
  };
  std::map<std::pair<CUcontext, CUlimit>, Held> held_;
};

}  // namespace gpupool::worker
