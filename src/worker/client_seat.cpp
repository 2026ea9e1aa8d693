#include "worker/client_seat.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstdio>

namespace gpupool::worker {
namespace {

bool hung_up(int fd) {
  pollfd state{fd, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace

bool ClientSeat::offer(wire::Socket& socket, std::vector<std::byte> hello, std::uint64_t pid) {
  const std::lock_guard lock(mutex_);
  if (active_fd_ >= 0) {
    if (pid != active_pid_ && !hung_up(active_fd_)) return false;
    ::shutdown(active_fd_, SHUT_RDWR);  // wakes the executor, which then takes the new one
  } else if (waiting_ && waiting_->pid != pid && !hung_up(waiting_->socket.fd())) {
    return false;
  }
  waiting_ = Client{std::move(socket), std::move(hello), pid};
  arrival_.notify_one();
  return true;
}

void ClientSeat::run(SessionExecutor& executor) {
  for (;;) {
    Client client;
    {
      std::unique_lock lock(mutex_);
      arrival_.wait(lock, [this] { return waiting_.has_value(); });
      client = std::move(*waiting_);
      waiting_.reset();
      active_fd_ = client.socket.fd();
      active_pid_ = client.pid;
      view_.connected = true;
      ++view_.connections;
      view_.said_goodbye = false;
    }
    changed_();
    ServeEnd end = ServeEnd::broken;
    try {
      end = executor.serve(client.socket.fd(), client.hello);
    } catch (const std::exception& error) {
      // Whatever a client made go wrong ends its connection, never the worker.
      std::fprintf(stderr, "gpupool-worker: connection ended by an error: %s\n", error.what());
    }
    {
      const std::lock_guard lock(mutex_);
      active_fd_ = -1;
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
