// Host memory through which copies pass when the CPU cannot reach device memory.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "worker/driver/driver.h"

namespace gpupool::worker {

/// Two chunks, so that one is on the network while the other is on the bus. Pinned where the driver allows
/// it. An event of its context says when the copy that last used a chunk is complete, so it does not matter
/// what is current by then and whether the stream still exists.
class Staging {
 public:
  static constexpr std::size_t chunk_bytes = 4 << 20;

  /// The current context owns the memory and must outlive this.
  explicit Staging(const DriverApi& api);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Chunk `n` (0 or 1), ready to be overwritten: waits for the copy that last used it. On an error of that
  /// copy, `out` may still be used later but not now.
  CUresult chunk(std::size_t n, std::byte*& out);
  /// A copy that reads or writes chunk `n` was just given to `stream` of `context`, which is current.
  CUresult used(std::size_t n, CUcontext context, CUstream stream);
  /// Waits for the copy that last used chunk `n`.
  CUresult wait(std::size_t n);
  /// Before `context` is destroyed: its copies are complete and its events gone when this returns.
  void forget(CUcontext context);

  [[nodiscard]] std::byte* memory(std::size_t n) const { return chunks_[n]; }

 private:
  const DriverApi& api_;
  bool pinned_ = false;
  std::array<std::byte*, 2> chunks_{};
  std::vector<std::byte> pageable_;
  std::map<CUcontext, std::array<CUevent, 2>> events_;  ///< one per chunk, made when first needed
  std::array<CUevent, 2> pending_{};                    ///< of events_; null when no copy uses the chunk
};

}  // namespace gpupool::worker
