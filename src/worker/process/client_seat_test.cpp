#include "worker/process/client_seat.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "wire/transport/socket_stream.h"

using namespace gpupool;
using worker::ClientSeat;

namespace {

/// Serves a client until its stream ends.
struct Server {
  worker::ServeEnd serve(wire::Stream& stream, std::span<const std::byte> hello) {
    {
      const std::lock_guard lock(mutex);
      served.push_back(static_cast<int>(hello.size()));
    }
    changed.notify_all();
    static_cast<void>(stream.readable(wire::Stream::for_ever));
    return worker::ServeEnd::broken;
  }

  /// Until so many clients have been let in; which ones.
  std::vector<int> wait_for(std::size_t count) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return served.size() >= count; }));
    return served;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> served;
};

struct Seat {
  Seat() {
    std::thread([this] {
      seat.run([this](wire::Stream& stream, std::span<const std::byte> hello) {
        return server.serve(stream, hello);
      });
    }).detach();
  }
  /// A client's own end; empty when there was no place.
  wire::Socket sit(int name, std::uint64_t pid, std::uint64_t connection = 0) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    wire::Socket own(fds[0]);
    std::unique_ptr<wire::Stream> stream = std::make_unique<wire::SocketStream>(wire::Socket(fds[1]));
    const bool let_in =
        seat.offer(stream, std::vector<std::byte>(static_cast<std::size_t>(name)), pid, connection);
    return let_in ? std::move(own) : wire::Socket();
  }
  Server server;
  ClientSeat seat{[] {}};
};

/// Its thread never ends, so it stays.
Seat& new_seat() {
  static std::vector<Seat*>& all = *new std::vector<Seat*>;
  return *all.emplace_back(new Seat);
}

}  // namespace

TEST_CASE("a process takes the place of its own earlier connection, another one only when that has hung up") {
  Seat& seat = new_seat();
  const auto first = seat.sit(1, 10, 1);
  REQUIRE(first);
  seat.server.wait_for(1);
  CHECK_FALSE(seat.sit(2, 11, 1));
  auto again = seat.sit(3, 10, 2);
  REQUIRE(again);
  CHECK(seat.server.wait_for(2) == std::vector{1, 3});
  again.close();
  for (int n = 0; n < 60'000 && seat.seat.view().connected; ++n)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(seat.sit(4, 11, 1));
  CHECK(seat.server.wait_for(3) == std::vector{1, 3, 4});
}

TEST_CASE("a connection that was only late does not take the place of a newer one") {
  Seat& seat = new_seat();
  const auto newer = seat.sit(1, 10, 5);
  seat.server.wait_for(1);
  CHECK_FALSE(seat.sit(2, 10, 4));
  CHECK(seat.seat.view().connected);
  CHECK(seat.sit(3, 10, 0));  // one that does not number its connections
}
