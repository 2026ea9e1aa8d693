#include "worker/lease/usage.h"

namespace gpupool::worker {

UsageSnapshot Usage::snapshot() const noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  UsageSnapshot copy;
  copy.device_ns = device_ns.load(relaxed);
  copy.kernels = kernels.load(relaxed);
  copy.posts = posts.load(relaxed);
  copy.asks = asks.load(relaxed);
  copy.calls = copy.posts + copy.asks;
  copy.ask_ns = ask_ns.load(relaxed);
  copy.bytes_in = bytes_in.load(relaxed);
  copy.bytes_out = bytes_out.load(relaxed);
  copy.last_submit_ns = last_submit_ns.load(relaxed);
  copy.in_flight = in_flight.load(relaxed);
  return copy;
}

}  // namespace gpupool::worker
