// The failure of a post, which the worker tells with something it sends later.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace gpupool::client {

struct DeferredError {
  std::int32_t error;  ///< CUresult
  std::uint16_t message;
};

/// Keeps the first until it is taken: the worker tells each only once. Thread-safe.
class DeferredErrorSlot {
 public:
  void keep(std::int32_t error, std::uint32_t message) {
    if (error == 0) return;
    std::uint64_t none = 0;
    kept_.compare_exchange_strong(none, std::uint64_t{message} << 32 | static_cast<std::uint32_t>(error));
  }
  std::optional<DeferredError> take() {
    if (kept_.load(std::memory_order_acquire) == 0) return std::nullopt;
    const std::uint64_t taken = kept_.exchange(0);
    if (taken == 0) return std::nullopt;
    return DeferredError{static_cast<std::int32_t>(taken), static_cast<std::uint16_t>(taken >> 32)};
  }

 private:
  std::atomic<std::uint64_t> kept_{0};  // message << 32 | error, 0: none
};

}  // namespace gpupool::client
