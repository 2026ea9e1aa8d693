// The client's end of a connection to a worker that says anything.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "client/connection.h"
#include "fuzz/frame_script.h"
#include "wire/socket.h"

using namespace gpupool;

namespace {

/// A payload's place that takes at most a megabyte.
class Bounded final : public client::PayloadSink {
 public:
  bool take(wire::Receiver& receiver, std::uint64_t size) override {
    if (size > (1u << 20)) return false;
    std::vector<std::byte> into(static_cast<std::size_t>(size));
    return receiver.take(into.data(), into.size());
  }
};

/// Replies in the order of the asks, unless the script says otherwise.
class WorkerReplies {
 public:
  bool operator()(const fuzz::FrameRecord& record, wire::FrameHeader& header) {
    const bool output = record.message == static_cast<std::uint16_t>(wire::Control::output);
    header.message = sequence_ == 0 ? 1 : static_cast<std::uint16_t>(wire::first_call + record.message % 4);
    if (output) header.message = record.message;
    header.flags = output ? wire::flag_bulk : wire::flag_reply;
    if (!output) header.sequence = ++sequence_;
    if (!output && record.message >= 128) header.flags |= wire::flag_bulk;
    return (header.flags & wire::flag_bulk) != 0;
  }

 private:
  std::uint64_t sequence_ = 0;
};

struct Listener {
  Listener() {
    std::string error;
    socket = wire::listen_tcp("127.0.0.1:0", port, error);
    if (!socket) std::abort();
    // What kernels print goes to the program's own output, which is no part of this.
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
  }
  wire::Socket socket;
  std::uint16_t port = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Listener listener;
  const auto bytes = fuzz::frames_of(std::as_bytes(std::span(data, size)), WorkerReplies{}, std::byte{'x'});
  std::thread worker([&] {
    const wire::Socket accepted(accept4(listener.socket.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    wire::send_all(accepted.fd(), bytes);
    shutdown(accepted.fd(), SHUT_WR);
    char sink[4096];
    while (recv(accepted.fd(), sink, sizeof(sink), 0) > 0) continue;
  });
  {
    wire::HelloReply answer;
    std::string error;
    const auto connection =
        client::Connection::open("127.0.0.1:" + std::to_string(listener.port), {}, answer, error);
    for (std::uint16_t n = 0; connection != nullptr && n < 6; ++n) {
      const auto encode = [](wire::Writer& out) { out.put(std::uint32_t{1}); };
      client::Reply reply;
      Bounded sink;
      const client::Outgoing out{static_cast<std::uint16_t>(wire::first_call + n % 4), 7};
      if (n % 3 == 2 && !connection->post(out, encode)) break;
      if (!connection->ask(out, encode, reply, n % 2 == 0 ? &sink : nullptr)) break;
      static_cast<void>(connection->take_deferred());
    }
  }
  worker.join();
  return 0;
}
