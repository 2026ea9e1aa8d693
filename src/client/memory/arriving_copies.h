// Copies from the device that the program does not wait for: the worker sends their bytes when it has them.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "base/mutex.h"
#include "client/lease/session_file.h"
#include "client/link/connection.h"
#include "client/session/worker_link.h"
#include "wire/windows.h"

namespace gpupool::client {

/// Thread-safe.
class ArrivingCopies {
 public:
  /// Takes the worker's pushes that bring bytes.
  void listen(Connection& connection, const WorkerLink& worker);

  /// Asks for `size` bytes in pieces. Waits only when there are more pieces under way than both ends have
  /// room for.
  CUresult copy(void* to, CUdeviceptr from, std::size_t size, std::uint64_t stream, std::uint64_t context);

  /// The program is about to wait for a stream, or for all streams of `context`: the copies under way there
  /// are waited for.
  void stream_awaited(std::uint64_t stream, std::uint64_t context);
  void context_awaited(std::uint64_t context);

  /// Until no copy into the range is under way: before the program's memory is read here, or goes.
  void settle(const void* start, std::size_t size);

  struct Piece {
    std::byte* to;
    std::size_t size;
    std::uint64_t stream, context;
    std::size_t uncounted;  ///< of the last piece: size of the whole copy, until it was waited for
    unsigned worker;        ///< that it comes from
  };
  /// One piece will arrive, under the number `ticket`. False: too many are under way.
  bool reserve(const Piece& piece, std::uint64_t& ticket);
  /// It will not, or has.
  void end(std::uint64_t ticket);
  /// The session is over (session_belongings.h).
  void forget();

 private:
  static bool is_small(std::size_t size) { return size <= wire::small_piece; }
  bool take(const WorkerLink& worker, std::span<const std::byte> body, wire::Receiver& receiver,
            std::uint64_t payload);
  template <class Awaited>
  void count_waits(const Awaited& awaited);

  Mutex mutex_;
  std::unordered_map<std::uint64_t, Piece> pieces_ GUARDED_BY(mutex_);
  std::uint64_t last_ticket_ GUARDED_BY(mutex_) = 0;
  std::array<std::array<std::size_t, 2>, SessionFile::max_workers> under_way_
      GUARDED_BY(mutex_){};  // large, small
};

ArrivingCopies& arriving_copies();

}  // namespace gpupool::client
