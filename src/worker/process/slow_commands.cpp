#include "worker/process/slow_commands.h"

#include <sys/prctl.h>

#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

namespace gpupool::worker {

SlowCommands::~SlowCommands() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wakes_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool SlowCommands::add(Command command) {
  if (outstanding_ >= most) return false;
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& none) {
      std::fprintf(stderr, "gpupool-worker: no thread for what takes long: %s\n", none.what());
      return false;
    }
  }
  waiting_.push_back(std::move(command));
  ++outstanding_;
  wakes_.notify_all();
  return true;
}

std::vector<SlowCommands::Finished> SlowCommands::take_finished() {
  const std::lock_guard lock(mutex_);
  outstanding_ -= done_.size();
  return std::exchange(done_, {});
}

void SlowCommands::run() {
  prctl(PR_SET_NAME, "gpupool-move");
  std::unique_lock lock(mutex_);
  for (;;) {
    wakes_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    Command command = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    MoveResult result;
    try {
      result = command.work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "gpupool-worker: the session's memory was not moved: %s\n", error.what());
      result.refusal = "failed";
    }
    lock.lock();
    done_.push_back({std::move(command), std::move(result)});
    lock.unlock();
    finished_();
    lock.lock();
  }
}

}  // namespace gpupool::worker
