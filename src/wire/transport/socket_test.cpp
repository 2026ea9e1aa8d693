// A peer that does not read is waited for; a peer that is gone is noticed.
#include "wire/transport/socket.h"

#include <doctest/doctest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "wire/transport/descriptor_message.h"

using namespace gpupool::wire;

namespace {

struct Connected {
  Connected() {
    std::uint16_t port = 0;
    std::string error;
    Socket listener = listen_tcp("127.0.0.1:0", port, error);
    REQUIRE_MESSAGE(listener, error);
    near = connect_tcp("127.0.0.1:" + std::to_string(port), 5000, error);
    REQUIRE_MESSAGE(near, error);
    far = Socket(accept(listener.fd(), nullptr, nullptr));
    REQUIRE(far);
    tune(far.fd());
  }
  Socket near, far;
};

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  REQUIRE(getsockopt(fd, level, name, &value, &size) == 0);
  return value;
}

/// Instead of seconds, so that the tests are short.
void look_every(int fd, int milliseconds) {
  const timeval interval{milliseconds / 1000, milliseconds % 1000 * 1000};
  for (int name : {SO_RCVTIMEO, SO_SNDTIMEO})
    REQUIRE(setsockopt(fd, SOL_SOCKET, name, &interval, sizeof(interval)) == 0);
}

void set_loopback(bool up) {
  Socket any(socket(AF_INET, SOCK_DGRAM, 0));
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  REQUIRE(ioctl(any.fd(), SIOCGIFFLAGS, &request) == 0);
  const int flags = request.ifr_flags;
  request.ifr_flags = static_cast<short>(up ? flags | IFF_UP : flags & ~IFF_UP);
  REQUIRE(ioctl(any.fd(), SIOCSIFFLAGS, &request) == 0);
}

/// 0, or which step went wrong.
int notices_a_pulled_cable() {
  set_loopback(true);
  Connected pair;
  std::byte byte{};
  if (!send_all(pair.near.fd(), {&byte, 1}) || !receive_exactly(pair.far.fd(), &byte, 1)) return 1;
  set_loopback(false);
  const auto began = std::chrono::steady_clock::now();
  if (!send_all(pair.near.fd(), {&byte, 1})) return 2;
  if (peer_vanished(pair.near.fd(), 2)) return 3;
  while (!peer_vanished(pair.near.fd(), 2)) {
    if (std::chrono::steady_clock::now() - began > std::chrono::minutes(1)) return 4;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  errno = EAGAIN;
  if (!worth_another_try(pair.near.fd())) return 5;  // two attempts are not enough to give up
  if (wait_readable(pair.near.fd(), 1)) return 6;
  return wait_readable(pair.near.fd(), -1, 2) ? 0 : 7;
}

/// A page that nobody may touch.
void* no_memory() {
  return mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/// The signal that ends a process which does `what`; 0: it ends by itself.
template <class What>
int signal_of(What what) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    what();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("memory that is not there is the program's fault, and no broken connection") {
  Connected pair;
  auto* const bad = static_cast<std::byte*>(no_memory());
  CHECK(signal_of([&] { static_cast<void>(send_all(pair.near.fd(), {bad, 4096})); }) == SIGSEGV);
  std::vector<std::byte> sent(4096);
  REQUIRE(send_all(pair.near.fd(), sent));
  CHECK(signal_of([&] { static_cast<void>(receive_exactly(pair.far.fd(), bad, 4096)); }) == SIGSEGV);
  munmap(bad, 4096);
}

TEST_CASE("a second descriptor is not delivered, and so not lost") {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const Socket near(pair[0]), far(pair[1]);
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int two[2] = {near.fd(), near.fd()};
  std::memcpy(CMSG_DATA(rights), two, sizeof(two));
  const Socket next(dup(near.fd()));
  REQUIRE(sendmsg(near.fd(), &message, 0) == 1);
  std::byte got{};
  Socket descriptor;
  CHECK_FALSE(receive_with_descriptor(far.fd(), {&got, 1}, descriptor));
  descriptor.close();
  const Socket again(dup(near.fd()));
  CHECK(again.fd() == next.fd() + 1);
}

TEST_CASE("the system never ends a connection because its peer does not read") {
  Connected pair;
  for (const Socket* one : {&pair.near, &pair.far}) {
    CHECK(option(one->fd(), IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
    CHECK(option(one->fd(), SOL_SOCKET, SO_KEEPALIVE) == 1);
    const int noticed =
        option(one->fd(), IPPROTO_TCP, TCP_KEEPIDLE) +
        option(one->fd(), IPPROTO_TCP, TCP_KEEPINTVL) * option(one->fd(), IPPROTO_TCP, TCP_KEEPCNT);
    CHECK(noticed >= 15);
    CHECK(noticed <= 30);
  }
}

TEST_CASE("a peer that does not read for many looks gets everything later") {
  Connected pair;
  look_every(pair.near.fd(), 20);
  look_every(pair.far.fd(), 20);
  std::vector<std::byte> sent(32u << 20), received(sent.size());
  for (std::size_t n = 0; n < sent.size(); ++n) sent[n] = static_cast<std::byte>(n * 7 >> 3);
  bool complete = false;
  std::thread writer([&] { complete = send_all(pair.near.fd(), sent); });
  std::this_thread::sleep_for(std::chrono::seconds(2));
  CHECK_FALSE(peer_vanished(pair.near.fd()));
  CHECK(receive_exactly(pair.far.fd(), received.data(), received.size()));
  writer.join();
  CHECK(complete);
  CHECK(received == sent);
}

TEST_CASE("a reader waits for a silent peer, and sees its end") {
  Connected pair;
  look_every(pair.near.fd(), 10);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::byte one{1};
    send_all(pair.far.fd(), {&one, 1});
    pair.far.close();
  });
  std::byte got{};
  CHECK(receive_exactly(pair.near.fd(), &got, 1));
  CHECK(got == std::byte{1});
  CHECK_FALSE(receive_exactly(pair.near.fd(), &got, 1));
  late.join();
}

TEST_CASE("of a range of ports each listener has one, until none is left") {
  std::uint16_t free = 0, port = 0;
  std::string error;
  // Whoever else listens on this machine may have taken the neighbours: another pair then.
  for (int attempt = 0; attempt < 50; ++attempt) {
    {
      const Socket found = listen_tcp("127.0.0.1:0", free, error);
    }
    if (free == UINT16_MAX) continue;
    const std::string range = "127.0.0.1:" + std::to_string(free) + "-" + std::to_string(free + 1);
    const Socket one = listen_tcp(range, port, error);
    if (!one) continue;
    const int first = port;
    CHECK((first == free || first == free + 1));
    const Socket two = listen_tcp(range, port, error);
    if (!two) continue;
    CHECK(first + port == 2 * free + 1);
    CHECK(!listen_tcp(range, port, error));
    CHECK(error == "no port of " + range + " is free");
    return;
  }
  FAIL("no two ports beside each other are free");
}

TEST_CASE("what is no range of ports is refused with the address") {
  for (const char* ports : {"0-10", "20-10", "1-65536", "1-", "-1", "1-2x", "a-b"}) {
    const std::string address = std::string("127.0.0.1:") + ports;
    std::uint16_t port = 0;
    std::string error;
    CHECK(!listen_tcp(address, port, error));
    CHECK(error == "not a range of ports: " + address);
  }
}

TEST_CASE("a peer that is gone while something is under way is noticed") {
  constexpr int skipped = 77;
  const pid_t child = fork();  // in a network of its own, whose cable can be pulled
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(skipped);
    _exit(notices_a_pulled_cable());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == skipped) {
    MESSAGE("no network namespaces here: not tested");
    return;
  }
  CHECK(status == 0);
}
