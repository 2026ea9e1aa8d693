#include "client/link/door.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/transport/dial.h"
#include "wire/transport/worker_address.h"

namespace gpupool::client {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t largest_answer = 4096;

int left(Clock::time_point end) {
  const auto time = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(time.count(), 0));
}

bool receive(wire::Stream& stream, std::byte* into, std::size_t size, Clock::time_point end) {
  for (std::size_t done = 0; done < size;) {
    if (!stream.readable(left(end))) return false;
    const std::size_t got = stream.receive_some(into + done, size - done);
    if (got == 0) return false;
    done += got;
  }
  return true;
}

/// The fields of the answer, behind its ReplyHeader.
std::optional<std::vector<std::byte>> ask(wire::Stream& stream, const Door& door, wire::Control message,
                                          Clock::time_point end) {
  struct {
    wire::FrameHeader header;
    wire::HelloBody body;
  } frame{};
  static_assert(sizeof(frame) == sizeof(frame.header) + sizeof(frame.body));
  frame.header = {sizeof(frame), static_cast<std::uint16_t>(message), wire::flag_ask, 0, 0, 0};
  frame.body.magic = wire::hello_magic;
  frame.body.version = wire::protocol_version;
  frame.body.token = door.token;
  frame.body.session = door.session;
  frame.body.pid = static_cast<std::uint64_t>(getpid());
  if (!stream.send(std::as_bytes(std::span(&frame, 1)))) return std::nullopt;
  wire::FrameHeader header{};
  std::vector<std::byte> body(sizeof(header));
  if (!receive(stream, body.data(), body.size(), end) || !wire::read_front(body, header)) return std::nullopt;
  if (!wire::valid(header, largest_answer) || header.message != static_cast<std::uint16_t>(message) ||
      header.flags != wire::flag_reply) {
    return std::nullopt;
  }
  body.resize(header.length - sizeof(header));
  wire::ReplyHeader result{};
  if (!receive(stream, body.data(), body.size(), end) || !wire::read_front(body, result) ||
      result.status != wire::Status::ok) {
    return std::nullopt;
  }
  body.erase(body.begin(), body.begin() + sizeof(result));
  return body;
}

std::optional<std::vector<std::byte>> ask(const Door& door, wire::Control message, int timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  wire::WorkerAddress worker;
  std::vector<wire::Transport> ways;
  std::string error;
  if (!wire::WorkerAddress::parse(door.address, worker, error) || !wire::ways_to(worker, ways, error)) {
    return std::nullopt;
  }
  for (const wire::Transport way : ways) {
    const auto stream = wire::dial_for_an_answer(worker, way, std::max(left(end), 1), error);
    if (stream == nullptr) continue;
    if (auto answer = ask(*stream, door, message, end)) return answer;
  }
  return std::nullopt;
}

}  // namespace

std::optional<wire::Inquiry> inquire(const Door& door, int timeout_ms) {
  const auto fields = ask(door, wire::Control::inquire, timeout_ms);
  if (!fields) return std::nullopt;
  wire::Reader in(*fields);
  wire::Inquiry answer;
  if (!wire::Inquiry::decode(in, answer)) return std::nullopt;
  return answer;
}

bool end_session(const Door& door, int timeout_ms) {
  return ask(door, wire::Control::end_session, timeout_ms).has_value();
}

}  // namespace gpupool::client
