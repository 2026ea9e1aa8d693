// Commands of the node agent that take seconds: carried out one after the other on a thread of their own, so
// that the control thread goes on answering, renewing and fencing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "worker/lease/worker_state.h"

namespace gpupool::worker {

class SlowCommands {
 public:
  static constexpr std::size_t most = 16;

  struct Command {
    std::uint64_t connection = 0;                            ///< who is answered
    std::function<MoveResult()> work;                        ///< on the thread
    std::function<std::string(const MoveResult&)> conclude;  ///< on the control thread: gives the answer
  };
  struct Finished {
    Command command;
    MoveResult result;
  };

  /// `finished` is called on the thread after each command.
  explicit SlowCommands(std::function<void()> finished) : finished_(std::move(finished)) {}
  ~SlowCommands();
  SlowCommands(const SlowCommands&) = delete;
  SlowCommands& operator=(const SlowCommands&) = delete;

  // The control thread calls these.

  /// False: too many wait, or there is no thread for it now.
  [[nodiscard]] bool add(Command command);
  /// Commands added and not taken yet.
  [[nodiscard]] std::size_t outstanding() const { return outstanding_; }
  /// Those whose work is done, in the order in which they were added.
  [[nodiscard]] std::vector<Finished> take_finished();

 private:
  void run();

  const std::function<void()> finished_;
  std::size_t outstanding_ = 0;

  std::mutex mutex_;  // protects the rest
  std::condition_variable wakes_;
  std::deque<Command> waiting_;
  std::vector<Finished> done_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gpupool::worker
