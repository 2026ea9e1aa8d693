// For tests: a session behind the stand-in driver, and a client that says one message at a time to it.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "generated/messages.h"
#include "wire/frame.h"
#include "wire/handle.h"
#include "wire/hello.h"
#include "wire/transport/socket_stream.h"
#include "worker/lease/worker_state.h"
#include "worker/process/session_host.h"

namespace gpupool::worker {

/// One client of one session, which lives as long as this does.
class SessionTestClient {
 public:
  static constexpr std::uint64_t arena = std::uint64_t{6} << 44;
  static constexpr std::uint64_t granularity = 2u << 20;

  struct Answer {
    std::uint64_t sequence = 0;
    wire::ReplyHeader header{};
    std::vector<std::byte> fields, payload;
  };

  explicit SessionTestClient(
      std::uint64_t memory = 64u << 20, const std::string& image_cache = {},
      std::initializer_list<std::string_view> uuids = {"01010101010101010101010101010101"},
      std::uint64_t context_reserve = 0) {
    state.image_cache = image_cache;
    state.image_cache_mib = 64;
    for (const std::string_view uuid : uuids) {
      state.devices.push_back({0, std::string(uuid), 500, 64});
      state.memory.emplace_back(memory, context_reserve);
    }
    grant(1);
    session_ = SessionHost::open(GPUPOOL_TEST_DRIVER, state);
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    client_ = wire::Socket(fds[0]);
    served_ = wire::Socket(fds[1]);
    thread_ = std::thread([this] {
      wire::SocketStream stream(std::move(served_));
      session_->serve(stream, hello());
    });
    const auto answer = read();
    REQUIRE(answer.header.status == wire::Status::ok);
    messages::SelectContext select;
    select.context = context();
    post(select);
  }
  ~SessionTestClient() {
    shutdown(client_.fd(), SHUT_RDWR);
    thread_.join();
  }
  SessionTestClient(const SessionTestClient&) = delete;
  SessionTestClient& operator=(const SessionTestClient&) = delete;

  WorkerState state;
  std::uint32_t epoch = 0;

  /// The primary one of a device.
  static std::uint64_t context(std::uint32_t device = 0) {
    return wire::Handle{wire::Kind::context, 0, device}.value();
  }
  static std::uint64_t handle(wire::Kind kind, std::uint32_t index) {
    return wire::Handle{kind, 0, index}.value();
  }

  [[nodiscard]] SessionHost& session() { return *session_; }

  /// Under the lease of a new epoch from now on.
  void grant(std::uint32_t next) {
    REQUIRE(state.gate.grant(next, boottime_ns() + 3'600'000'000'000, boottime_ns()) == LeaseAnswer::ok);
    epoch = next;
  }

  template <class M>
  void post(M message, std::span<const std::byte> payload = {}) {
    send(message, payload);
  }
  template <class M>
  Answer ask(M message, std::span<const std::byte> payload = {}) {
    send(message, payload);
    return read();
  }
  /// Without waiting for the answer; the number that it will bear.
  template <class M>
  std::uint64_t begin(M message, std::uint32_t lane) {
    lane_ = lane;
    send(message, {});
    lane_ = 0;
    return sequence_;
  }
  std::uint64_t begin(wire::Control what) {
    send_frame(static_cast<std::uint16_t>(what), wire::flag_ask, {}, {});
    return sequence_;
  }
  /// What the worker said unasked.
  struct Push {
    wire::Control message;
    std::vector<std::byte> fields, payload;
  };
  std::vector<Push> pushes;  ///< that came before the last answer
  /// The next one, in a queue of those that came and those that will.
  Push next_push() {
    while (pushes.empty()) REQUIRE(read_frame() == std::nullopt);
    Push first = std::move(pushes.front());
    pushes.erase(pushes.begin());
    return first;
  }
  /// Number of the last message sent.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  /// Whether the worker ends the connection without another word.
  bool ended() {
    std::byte one{};
    return !wire::receive_exactly(client_.fd(), &one, 1);
  }
  /// The next answer, whosever it is.
  Answer next() { return read(); }
  Answer control(wire::Control what) {
    send_frame(static_cast<std::uint16_t>(what), wire::flag_ask, {}, {});
    return read();
  }
  Answer drain(std::uint32_t limit_ms) {
    send_frame(static_cast<std::uint16_t>(wire::Control::drain), wire::flag_ask,
               wire::packed(wire::Drain{limit_ms}).bytes(), {});
    return read();
  }
  void answer_limit(std::uint32_t number) {
    send_frame(static_cast<std::uint16_t>(wire::Control::limit_answered), 0,
               std::as_bytes(std::span(&number, 1)), {});
  }
  void hang_up() { shutdown(client_.fd(), SHUT_RDWR); }
  /// The first error of the posts since the last answer.
  int deferred() {
    Answer answer = control(wire::Control::ping);
    REQUIRE(answer.header.result == CUDA_SUCCESS);
    return answer.header.deferred_error;
  }

 private:
  template <class M>
  void send(M& message, std::span<const std::byte> payload) {
    if constexpr (M::bulk_request) message.payload_size = payload.size();
    wire::Buffer body;
    wire::Writer out(body);
    message.encode(out);
    const auto flags = (M::is_ask ? wire::flag_ask : 0) | (M::bulk_request ? wire::flag_bulk : 0);
    send_frame(static_cast<std::uint16_t>(M::id), static_cast<std::uint16_t>(flags), body.bytes(), payload);
  }

  void send_frame(std::uint16_t message, std::uint16_t flags, std::span<const std::byte> body,
                  std::span<const std::byte> payload) {
    wire::FrameHeader header{};
    header.length = static_cast<std::uint32_t>(sizeof(header) + body.size());
    header.message = message;
    header.flags = flags;
    header.epoch = epoch;
    header.lane = lane_;
    header.sequence = ++sequence_;
    REQUIRE(wire::send_all(client_.fd(), std::as_bytes(std::span(&header, 1))));
    REQUIRE(wire::send_all(client_.fd(), body));
    REQUIRE(wire::send_all(client_.fd(), payload));
  }

  Answer read() {
    while (true) {
      if (auto answer = read_frame()) return std::move(*answer);
    }
  }

  /// An answer; nothing when it was a push.
  std::optional<Answer> read_frame() {
    Answer answer;
    wire::FrameHeader header{};
    REQUIRE(wire::receive_exactly(client_.fd(), &header, sizeof(header)));
    const bool reply = (header.flags & wire::flag_reply) != 0;
    answer.sequence = header.sequence;
    if (reply) REQUIRE(wire::receive_exactly(client_.fd(), &answer.header, sizeof(answer.header)));
    answer.fields.resize(header.length - sizeof(header) - (reply ? sizeof(answer.header) : 0));
    REQUIRE(wire::receive_exactly(client_.fd(), answer.fields.data(), answer.fields.size()));
    if ((header.flags & wire::flag_bulk) != 0) {
      std::uint64_t size = 0;
      std::memcpy(&size, &answer.fields[answer.fields.size() - sizeof(size)], sizeof(size));
      answer.payload.resize(size);
      REQUIRE(wire::receive_exactly(client_.fd(), answer.payload.data(), size));
      if (!reply) answer.fields.resize(answer.fields.size() - sizeof(size));
    }
    if (reply) return answer;
    if (header.message == static_cast<std::uint16_t>(wire::Control::acknowledged)) return std::nullopt;
    pushes.push_back({static_cast<wire::Control>(header.message), answer.fields, answer.payload});
    return std::nullopt;
  }

  std::vector<std::byte> hello() {
    wire::FrameHeader header{};
    wire::HelloBody body{};
    header.length = sizeof(header) + sizeof(body);
    header.message = static_cast<std::uint16_t>(wire::Control::hello);
    header.flags = wire::flag_ask;
    body.magic = wire::hello_magic;
    body.version = wire::protocol_version;
    body.pid = 1;
    body.arena_base = arena;
    std::vector<std::byte> bytes(header.length);
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), &body, sizeof(body));
    return bytes;
  }

  std::unique_ptr<SessionHost> session_;
  wire::Socket client_, served_;
  std::thread thread_;
  std::uint64_t sequence_ = 1;
  std::uint32_t lane_ = 0;
};

/// What the stand-in driver exports for its tests, by name.
template <class T>
T& of_test_driver(const char* name) {
  static void* const library = dlopen(GPUPOOL_TEST_DRIVER, RTLD_NOW | RTLD_LOCAL);
  void* const found = dlsym(library, name);
  REQUIRE(found != nullptr);
  return *reinterpret_cast<T*>(found);
}

}  // namespace gpupool::worker
