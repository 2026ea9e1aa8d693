// Tells the client how much of its share is taken by what it does not count itself: modules, arrays, memory
// of graphs, the heap of kernels. So an allocation that does not fit is refused when it is asked for, and
// cuMemGetInfo is right, without a question.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "worker/memory_account.h"
#include "worker/outlet.h"

namespace gpupool::worker {

/// Thread-safe.
class ChargeTeller {
 public:
  /// Before anything is said that tells of the change.
  void tell(const std::deque<MemoryAccount>& accounts, Outlet& outlet) {
    const std::lock_guard lock(mutex_);
    told_.resize(accounts.size());
    for (std::size_t n = 0; n < accounts.size(); ++n) {
      const std::uint64_t beside = accounts[n].beside();
      if (beside == told_[n]) continue;
      wire::Buffer fields;
      wire::Writer out(fields);
      out.put(static_cast<std::uint32_t>(n));
      out.put(beside);
      if (outlet.push(wire::Control::charged, fields.bytes())) told_[n] = beside;
    }
  }
  /// Another client knows of nothing.
  void forget() {
    const std::lock_guard lock(mutex_);
    told_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> told_;
};

}  // namespace gpupool::worker
