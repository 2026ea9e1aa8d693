// Only the one certificate is accepted, and every wrong combination ends in words and in time.
#include "wire/transport/tls_stream.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <vector>

#include "wire/transport/socket_stream.h"

using namespace gpupool;
using namespace gpupool::wire;

namespace {

Fingerprint fingerprint_of(const TlsIdentity& identity) {
  WorkerAddress address;
  std::string error;
  REQUIRE(WorkerAddress::parse("h:1 tls=" + identity.fingerprint_hex(), address, error));
  return *address.tls;
}

struct Sockets {
  Sockets() {
    std::uint16_t port = 0;
    std::string error;
    Socket listener = listen_tcp("127.0.0.1:0", port, error);
    near = connect_tcp("127.0.0.1:" + std::to_string(port), 5000, error);
    REQUIRE_MESSAGE(near, error);
    far = Socket(accept(listener.fd(), nullptr, nullptr));
    tune(far.fd());
  }
  Socket near, far;
};

/// The worker's end as the door drives it; null when the handshake failed.
std::unique_ptr<TlsStream> shake(Socket& socket, const TlsIdentity& identity) {
  auto stream = TlsStream::accept(socket, identity);
  REQUIRE(stream != nullptr);
  while (true) {
    const long step = stream->try_handshake();
    if (step == 0) return stream;
    if (step == tls::failed) return nullptr;
    pollfd state{stream->fd(), static_cast<short>(step == tls::want_write ? POLLOUT : POLLIN), 0};
    if (poll(&state, 1, 5000) == 0) return nullptr;
  }
}

}  // namespace

TEST_CASE("bytes travel both ways at once over TLS, with more than one key each way") {
  const TlsIdentity identity;
  Sockets sockets;
  std::unique_ptr<TlsStream> far;
  std::thread worker([&] { far = shake(sockets.far, identity); });
  std::string error;
  const auto near = TlsStream::connect(std::move(sockets.near), fingerprint_of(identity), "w", 5000, error);
  worker.join();
  REQUIRE_MESSAGE(near != nullptr, error);
  REQUIRE(far != nullptr);
  std::vector<std::byte> sent(20'000'000), up(sent.size()), down(sent.size());
  for (std::size_t n = 0; n < sent.size(); ++n) sent[n] = static_cast<std::byte>(n * 31 >> 4);
  const auto send = [&sent](Stream& stream) {
    iovec parts[3] = {
        {sent.data(), 100}, {sent.data() + 100, 15'000}, {sent.data() + 15'100, sent.size() - 15'100}};
    CHECK(stream.send_parts(parts, 3));
  };
  std::thread a([&] { send(*near); });
  std::thread b([&] { send(*far); });
  std::thread c([&] { CHECK(near->receive(down.data(), down.size())); });
  CHECK(far->receive(up.data(), up.size()));
  a.join();
  b.join();
  c.join();
  CHECK(up == sent);
  CHECK(down == sent);
  CHECK_FALSE(near->readable(0));
  CHECK_FALSE(near->holds_unread());
  CHECK_FALSE(near->hung_up());
  far.reset();
  CHECK(near->hung_up());
  CHECK(near->receive_some(up.data(), 1) == 0);
}

TEST_CASE("a change of keys comes with the bytes behind it, so that nobody is woken for nothing") {
  const TlsIdentity identity;
  Sockets sockets;
  std::unique_ptr<TlsStream> far;
  std::thread worker([&] { far = shake(sockets.far, identity); });
  std::string error;
  const auto near = TlsStream::connect(std::move(sockets.near), fingerprint_of(identity), "w", 5000, error);
  worker.join();
  REQUIRE_MESSAGE(near != nullptr, error);
  REQUIRE(far != nullptr);
  for (int record = 0; record < 3000; ++record) {
    std::byte byte{static_cast<unsigned char>(record)}, got{};
    REQUIRE(near->send({&byte, 1}));
    REQUIRE(far->receive(&got, 1));
    REQUIRE(got == byte);
    // The side that has sent does what threads do that look for more.
    REQUIRE_FALSE(near->readable(0));
    REQUIRE_FALSE(far->readable(0));
  }
}

TEST_CASE("another certificate than the expected one is refused, in words") {
  const TlsIdentity expected, shown;
  CHECK(expected.fingerprint_hex() != shown.fingerprint_hex());
  Sockets sockets;
  std::unique_ptr<TlsStream> far;
  std::thread worker([&] { far = shake(sockets.far, shown); });
  std::string error;
  CHECK(TlsStream::connect(std::move(sockets.near), fingerprint_of(expected), "w", 5000, error) == nullptr);
  CHECK(error.find("another certificate") != std::string::npos);
  worker.join();
}

TEST_CASE("a client that speaks no TLS is found out") {
  const TlsIdentity identity;
  Sockets sockets;
  const std::vector<std::byte> frame(96, std::byte{1});
  REQUIRE(send_all(sockets.near.fd(), frame));
  CHECK(shake(sockets.far, identity) == nullptr);
}

TEST_CASE("a worker that speaks no TLS, or nothing, is found out in time") {
  const TlsIdentity identity;
  std::string error;
  {
    Sockets sockets;
    const std::vector<std::byte> answer(40, std::byte{2});
    REQUIRE(send_all(sockets.far.fd(), answer));
    CHECK(TlsStream::connect(std::move(sockets.near), fingerprint_of(identity), "w", 5000, error) == nullptr);
    CHECK(error.find("does not speak TLS") != std::string::npos);
  }
  {
    Sockets sockets;
    CHECK(TlsStream::connect(std::move(sockets.near), fingerprint_of(identity), "w", 100, error) == nullptr);
    CHECK(error.find("in time") != std::string::npos);
  }
}
