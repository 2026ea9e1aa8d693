// gpupool-bench-network: stands between a client and a worker and makes the way longer, not narrower.
//
//   gpupool-bench-network --to 127.0.0.1:4711 --delay-us 250
//
// prints `ready port=N`, takes one connection there, and passes every byte on the given time after it came,
// in both directions. Ends with the connection, or when its standard input is closed.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "wire/socket.h"

namespace {

using Clock = std::chrono::steady_clock;
using gpupool::wire::Socket;

/// Bytes under way in one direction.
class Way {
 public:
  Way(int from, int to, Clock::duration delay) : from_(from), to_(to), delay_(delay) {}

  /// Takes what has come. False at the end of the stream.
  bool take() {
    std::vector<std::byte> chunk(256 << 10);
    const ssize_t got = ::recv(from_, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    chunk.resize(static_cast<std::size_t>(got));
    under_way_.push_back({Clock::now() + delay_, std::move(chunk)});
    bytes_ += static_cast<std::size_t>(got);
    return true;
  }

  /// Hands over what is due. False when the receiver is gone.
  bool deliver() {
    while (!under_way_.empty() && under_way_.front().due <= Clock::now()) {
      if (!gpupool::wire::send_all(to_, under_way_.front().bytes)) return false;
      bytes_ -= under_way_.front().bytes.size();
      under_way_.pop_front();
    }
    return true;
  }

  [[nodiscard]] pollfd interest() const {
    constexpr std::size_t most = std::size_t{256} << 20;
    return {from_, static_cast<short>(bytes_ < most ? POLLIN : 0), 0};
  }
  [[nodiscard]] Clock::time_point next() const {
    return under_way_.empty() ? Clock::time_point::max() : under_way_.front().due;
  }

 private:
  struct Chunk {
    Clock::time_point due;
    std::vector<std::byte> bytes;
  };
  int from_, to_;
  Clock::duration delay_;
  std::size_t bytes_ = 0;
  std::deque<Chunk> under_way_;
};

void pass_on(int client, int worker, Clock::duration delay) {
  Way up(client, worker, delay), down(worker, client, delay);
  for (;;) {
    std::array<pollfd, 3> ends{up.interest(), down.interest(), pollfd{STDIN_FILENO, POLLIN, 0}};
    timespec left{}, *limit = nullptr;
    if (const auto next = std::min(up.next(), down.next()); next != Clock::time_point::max()) {
      const auto ns = std::max<std::int64_t>(
          0, std::chrono::duration_cast<std::chrono::nanoseconds>(next - Clock::now()).count());
      left = {ns / 1'000'000'000, ns % 1'000'000'000};
      limit = &left;
    }
    if (::ppoll(ends.data(), ends.size(), limit, nullptr) < 0 && errno != EINTR) return;
    char byte;
    if (ends[2].revents != 0 && ::read(STDIN_FILENO, &byte, 1) <= 0) return;
    if ((ends[0].revents != 0 && !up.take()) || (ends[1].revents != 0 && !down.take())) return;
    if (!up.deliver() || !down.deliver()) return;
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::string to;
  long delay_us = -1;
  for (int n = 1; n + 1 < count; n += 2) {
    if (std::string_view(arguments[n]) == "--to") to = arguments[n + 1];
    if (std::string_view(arguments[n]) == "--delay-us") delay_us = std::strtol(arguments[n + 1], nullptr, 10);
  }
  if (to.empty() || delay_us < 0) {
    std::fputs("usage: gpupool-bench-network --to HOST:PORT --delay-us N\n", stderr);
    return 2;
  }
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // wake up when it is due, not 50 us later
  std::string error;
  std::uint16_t port = 0;
  Socket listener = gpupool::wire::listen_tcp("127.0.0.1:0", port, error);
  if (!listener) {
    std::fprintf(stderr, "gpupool-bench-network: %s\n", error.c_str());
    return 1;
  }
  std::printf("ready port=%u\n", static_cast<unsigned>(port));
  std::fflush(stdout);
  std::array<pollfd, 2> ends{pollfd{listener.fd(), POLLIN, 0}, pollfd{STDIN_FILENO, POLLIN, 0}};
  if (::poll(ends.data(), ends.size(), -1) < 0 || (ends[0].revents & POLLIN) == 0) return 0;
  Socket client(::accept(listener.fd(), nullptr, nullptr));
  gpupool::wire::tune(client.fd());
  const Socket worker = gpupool::wire::connect_tcp(to, 5000, error);
  if (!worker) {
    std::fprintf(stderr, "gpupool-bench-network: %s\n", error.c_str());
    return 1;
  }
  gpupool::wire::tune(worker.fd());
  pass_on(client.fd(), worker.fd(), std::chrono::microseconds(delay_us));
  return 0;
}
