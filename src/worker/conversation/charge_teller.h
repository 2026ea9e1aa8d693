// Tells the client how much of its share is taken by what it does not count itself: modules, arrays, memory
// of graphs, the heap of kernels. So an allocation that does not fit is refused when it is asked for, and
// cuMemGetInfo is right, without a question. If one of these finds no room, the client hears its size, which
// only the worker knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "generated/wire/control.h"
#include "wire/frame.h"
#include "worker/conversation/outlet.h"
#include "worker/lease/memory_account.h"

namespace gpupool::worker {

/// Thread-safe.
class ChargeTeller {
 public:
  /// Before anything is said that tells of the change.
  void tell(std::deque<MemoryAccount>& accounts, Outlet& outlet) {
    const std::lock_guard lock(mutex_);
    told_.resize(accounts.size(), first_);
    for (std::size_t n = 0; n < accounts.size(); ++n) {
      if (const std::uint64_t bytes = accounts[n].take_refusal(); bytes != 0) {
        static_cast<void>(push(outlet, wire::Control::memory_refused, n, bytes));
      }
      const std::uint64_t beside = accounts[n].beside();
      if (beside != told_[n] && push(outlet, wire::Control::charged, n, beside)) told_[n] = beside;
    }
  }
  /// Another client knows of nothing.
  void forget() { begin(0); }
  /// Another worker told the client a size that is not known here.
  void doubt() { begin(unknown); }

 private:
  static constexpr std::uint64_t unknown = ~std::uint64_t{0};

  static bool push(Outlet& outlet, wire::Control what, std::size_t device, std::uint64_t bytes) {
    return outlet.push(what,
                       wire::packed(wire::DeviceBytes{static_cast<std::uint32_t>(device), bytes}).bytes());
  }

  void begin(std::uint64_t first) {
    const std::lock_guard lock(mutex_);
    told_.clear();
    first_ = first;
  }

  std::mutex mutex_;
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> told_;
};

}  // namespace gpupool::worker
