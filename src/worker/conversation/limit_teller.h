// Tells the client how large its shares are, so that what it allocates by itself is what the worker grants.
//
// A share that grows is told of. One that shrinks is wished for first: the client gives back what it only
// holds for later allocations, allocates nothing beyond the new size from then on, and answers. So the
// worker's word, which follows, is about memory that is really used, and nothing under way goes beyond it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "wire/hello.h"
#include "worker/conversation/outlet.h"
#include "worker/lease/memory_account.h"
#include "worker/lease/worker_state.h"

namespace gpupool::worker {

/// Thread-safe.
class LimitTeller {
 public:
  /// A client that was told `rooms` when it connected, by device.
  void begin(std::vector<std::uint64_t> rooms);
  /// Another worker told the client rooms that are not known here.
  void doubt();

  /// Says what there is to say. Before every answer, and on a thread that may wait for the client to read.
  void tell(const std::deque<MemoryAccount>& accounts, Outlet& outlet);

  /// Has the client asked to make do with less; the next tell() says it. One call at a time, decided()
  /// follows.
  void wish(const std::vector<ShareWish>& wishes);
  /// Until the client has answered. False: not within `limit`, or there is no client.
  bool await_answers(std::chrono::milliseconds limit);
  /// The client has answered the wish with this number; any other number means nothing.
  void answered(std::uint32_t number);
  /// The share has the size that it has now, whatever was wished for: the next tell() says it.
  void decided();

 private:
  struct Told {
    std::optional<std::uint64_t> room;  ///< what the client takes for its share, where that is known
    std::optional<std::uint64_t> wish;  ///< from wish() to decided()
    std::uint32_t number = 0;           ///< of the wish that waits for its answer; 0: none does
    bool said = false;
  };
  /// The next thing to say, noted as said.
  std::optional<wire::ShareLimit> next(const std::deque<MemoryAccount>& accounts);

  std::mutex telling_;  // held while something is said, so that the last word is the newest; taken first

  std::mutex mutex_;  // protects the rest; never held while the client is waited for
  std::condition_variable answers_;
  std::vector<Told> told_;
  std::uint32_t last_number_ = 0;
};

}  // namespace gpupool::worker
