// Functions of the client's that the driver calls in stream order.
//
// The driver calls a function of this process, which tells the client and waits until it has run its own: so
// what comes after it in the stream really waits. A client that is gone keeps nobody waiting.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "generated/wire/control.h"

namespace gpupool::worker {

class HostCalls {
 public:
  static constexpr std::size_t max_calls = 1u << 20;

  /// Has the client told of a call; `untold` is called when there is nobody to tell.
  using Announce = std::function<void(const wire::HostFunction& call, std::function<void()> untold)>;
  explicit HostCalls(Announce announce) : announce_(std::move(announce)) {}

  /// What the driver is given for a function that the client knows by `token`, once and for all. Null when
  /// there are too many. The address is the argument of call(). A token that is for one call is refused when
  /// it is in use, and where it could be called again.
  void* argument(std::uint64_t token, bool once_allowed = false);
  /// The token behind an argument; 0 for what is none.
  [[nodiscard]] std::uint64_t token(const void* argument);
  /// The function that the driver calls.
  static void call(void* argument);

  /// Whether the client runs a function that the device waits for.
  [[nodiscard]] bool under_way();
  /// The client has run what it was told of.
  void done(std::uint64_t run);
  /// A conversation begins. While no client is connected, calls wait for one that goes on with it.
  void open();
  /// It has ended: nobody waits any more.
  void close();
  /// The same if somebody waits; whether anybody did.
  bool give_up();

 private:
  struct Call {
    HostCalls* calls;
    std::uint64_t token;
  };

  void run(std::uint64_t token);
  void forget(std::uint64_t token);

  const Announce announce_;
  std::mutex mutex_;  // protects the rest
  std::condition_variable done_;
  std::uint64_t conversation_ = 0;                        // odd while one is open
  std::map<std::uint64_t, std::unique_ptr<Call>> calls_;  // kept while the driver may hold them
  std::set<const void*> arguments_;
  std::set<std::uint64_t> running_;
  std::uint64_t next_run_ = 1;
};

}  // namespace gpupool::worker
