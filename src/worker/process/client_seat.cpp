#include "worker/process/client_seat.h"

#include <sys/prctl.h>

#include <cstdio>

namespace gpupool::worker {

bool ClientSeat::is_late(std::uint64_t pid, std::uint64_t connection) const {
  if (connection == 0) return false;
  return (pid == active_pid_ && connection < active_connection_) ||
         (waiting_ && pid == waiting_->pid && connection < waiting_->connection);
}

bool ClientSeat::offer(std::unique_ptr<wire::Stream>& stream, std::vector<std::byte> hello, std::uint64_t pid,
                       std::uint64_t connection) {
  const std::lock_guard lock(mutex_);
  if (is_late(pid, connection)) return false;
  if (active_ != nullptr) {
    if (pid != active_pid_ && !active_->hung_up()) return false;
    active_->shut_down();  // wakes the thread that serves, which then takes the new one
  } else if (waiting_ && waiting_->pid != pid && !waiting_->stream->hung_up()) {
    return false;
  }
  waiting_ = Client{std::move(stream), std::move(hello), pid, connection};
  arrival_.notify_one();
  return true;
}

void ClientSeat::run(const Serve& serve) {
  prctl(PR_SET_TIMERSLACK, 1000);  // its naps between two looks at the device are that short
  for (;;) {
    Client client;
    {
      std::unique_lock lock(mutex_);
      arrival_.wait(lock, [this] { return waiting_.has_value(); });
      client = std::move(*waiting_);
      waiting_.reset();
      active_ = client.stream.get();
      active_pid_ = client.pid;
      active_connection_ = client.connection;
      view_.connected = true;
      ++view_.connections;
      view_.said_goodbye = false;
    }
    changed_();
    ServeEnd end = ServeEnd::broken;
    try {
      end = serve(*client.stream, client.hello);
    } catch (const std::exception& error) {
      // Whatever a client made go wrong ends its connection, never the worker.
      std::fprintf(stderr, "gpupool-worker: connection ended by an error: %s\n", error.what());
    }
    {
      const std::lock_guard lock(mutex_);
      active_ = nullptr;
      view_.connected = false;
      view_.said_goodbye = end == ServeEnd::goodbye;
      view_.gone_since_ns = boottime_ns();
    }
    changed_();
  }
}

ClientSeat::View ClientSeat::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

}  // namespace gpupool::worker
