// gpupool-bench-proxy: passes TCP connections on, as a slower network would, or one that breaks.
//
// Prints `ready port=N`. Commands on standard input, one a line: `cut` ends all connections at once, `stall`
// lets nothing through until `resume`. The end of its standard input ends it.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "wire/transport/delay_line.h"
#include "wire/transport/socket.h"

namespace gpupool::bench {
namespace {

/// One connection from a client, and the one to the target that belongs to it.
class Link {
 public:
  Link(wire::Socket client, wire::Socket target, wire::LinkQuality quality, bool stalled)
      : client_(std::move(client)),
        target_(std::move(target)),
        up_(quality, [this](auto bytes) { return wire::send_all(target_.fd(), bytes); }),
        down_(quality, [this](auto bytes) { return wire::send_all(client_.fd(), bytes); }),
        upward_((stall(stalled), std::thread([this] { carry(client_, up_, target_); }))),
        downward_([this] { carry(target_, down_, client_); }) {}
  ~Link() {
    cut();
    upward_.join();
    downward_.join();
  }

  void cut() {
    up_.cut();
    down_.cut();
    ::shutdown(client_.fd(), SHUT_RDWR);
    ::shutdown(target_.fd(), SHUT_RDWR);
  }
  void stall(bool stalled) {
    up_.stall(stalled);
    down_.stall(stalled);
  }
  [[nodiscard]] bool ended() const { return ended_ == 2; }

 private:
  void carry(const wire::Socket& from, wire::DelayLine& line, const wire::Socket& to) {
    std::vector<std::byte> buffer(64 << 10);
    while (true) {
      const ssize_t got = ::recv(from.fd(), buffer.data(), buffer.size(), 0);
      if (got < 0 && wire::worth_another_try(from.fd())) continue;
      if (got <= 0 || !line.put(std::span(buffer).first(static_cast<std::size_t>(got)))) break;
    }
    line.close([this, &to] {
      ::shutdown(to.fd(), SHUT_WR);
      ++ended_;
    });
  }

  wire::Socket client_, target_;
  std::atomic<int> ended_{0};
  wire::DelayLine up_, down_;
  std::thread upward_, downward_;
};

int run(const std::string& listen, const std::string& to, wire::LinkQuality quality) {
  std::string error;
  std::uint16_t port = 0;
  const wire::Socket listener = wire::listen_tcp(listen, port, error);
  if (!listener) {
    std::fprintf(stderr, "gpupool-bench-proxy: %s\n", error.c_str());
    return 1;
  }
  std::printf("ready port=%u\n", static_cast<unsigned>(port));
  std::fflush(stdout);
  std::list<Link> links;
  bool stalled = false;
  std::string commands;
  while (true) {
    pollfd watched[2] = {{listener.fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    if (::poll(watched, 2, -1) < 0) continue;
    links.remove_if([](const Link& link) { return link.ended(); });
    if (watched[0].revents != 0) {
      wire::Socket client(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) continue;
      wire::tune(client.fd());
      wire::Socket target = wire::connect_tcp(to, 5000, error);
      if (target) {
        links.emplace_back(std::move(client), std::move(target), quality, stalled);
      }
    }
    if (watched[1].revents == 0) continue;
    char text[256];
    const ssize_t got = ::read(STDIN_FILENO, text, sizeof(text));
    if (got <= 0) return 0;
    commands.append(text, static_cast<std::size_t>(got));
    for (std::size_t end; (end = commands.find('\n')) != std::string::npos; commands.erase(0, end + 1)) {
      const std::string command = commands.substr(0, end);
      if (command == "cut") {
        links.clear();
      } else if (command == "stall" || command == "resume") {
        stalled = command == "stall";
        for (Link& link : links) link.stall(stalled);
      } else {
        std::fprintf(stderr, "gpupool-bench-proxy: no such command: %s\n", command.c_str());
        continue;
      }
      std::printf("done %s\n", command.c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace gpupool::bench

int main(int argc, char** argv) {
  std::string listen = "127.0.0.1:0", to, error;
  std::optional<gpupool::wire::LinkQuality> quality = gpupool::wire::LinkQuality{};
  for (int n = 1; n + 1 < argc; n += 2) {
    const std::string_view option = argv[n];
    if (option == "--listen") listen = argv[n + 1];
    if (option == "--to") to = argv[n + 1];
    if (option == "--network") quality = gpupool::wire::LinkQuality::parse(argv[n + 1], error);
  }
  if (to.empty() || !quality || argc % 2 == 0) {
    std::fprintf(
        stderr,
        "usage: gpupool-bench-proxy --to HOST:PORT [--listen HOST:PORT] [--network delay_us=N,mbit=N]\n");
    return 2;
  }
  const int status = gpupool::bench::run(listen, to, *quality);
  std::fflush(nullptr);
  std::_Exit(status);
}
