// Host memory through which copies pass when the CPU cannot reach device memory.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <vector>

#include "worker/driver.h"

namespace gpupool::worker {

/// Two chunks, so that one is on the network while the other is on the bus. Pinned where the driver allows
/// it.
class Staging {
 public:
  static constexpr std::size_t chunk_bytes = 4 << 20;

  explicit Staging(const DriverApi& api);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Chunk `n` (0 or 1), ready to be overwritten: waits for the copy that last used it.
  std::byte* chunk(std::size_t n);
  /// A copy that reads or writes chunk `n` was just given to `stream` of the current context.
  void used(std::size_t n, CUstream stream);
  /// Waits for the copy that last used chunk `n`.
  CUresult wait(std::size_t n);

 private:
  const DriverApi& api_;
  bool pinned_ = false;
  std::array<std::byte*, 2> chunks_{};
  std::vector<std::byte> pageable_;
  std::array<CUstream, 2> streams_{};
  std::array<bool, 2> busy_{};
};

}  // namespace gpupool::worker
