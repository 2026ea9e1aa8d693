#include "worker/moving/session_transfer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/transport/dial.h"
#include "worker/moving/session_writer.h"

namespace gpupool::worker {
namespace {

constexpr int dial_timeout_ms = 5000;
constexpr std::int32_t refused_result = 1;
constexpr std::size_t numbers_at_once = 1u << 20;

wire::FrameHeader header_of(std::size_t length, int flags, std::uint64_t sequence) {
  wire::FrameHeader header{};
  header.length = static_cast<std::uint32_t>(length);
  header.message = static_cast<std::uint16_t>(wire::Control::session);
  header.flags = static_cast<std::uint16_t>(flags);
  header.sequence = sequence;
  return header;
}

/// A frame without a payload.
bool send_frame(wire::Stream& stream, int flags, std::span<const std::byte> body) {
  wire::Buffer frame;
  const wire::FrameHeader header = header_of(sizeof(header) + body.size(), flags, 0);
  frame.append(&header, sizeof(header));
  frame.append(body.data(), body.size());
  return stream.send(frame.bytes());
}

/// A connection on which the worker has been told what for it is.
std::unique_ptr<wire::Stream> dial_worker(const std::string& address,
                                          const std::array<std::uint8_t, 32>& move_key,
                                          const std::array<std::uint8_t, 16>& session) {
  wire::WorkerAddress worker;
  std::vector<wire::Transport> ways;
  std::string error;
  wire::HelloBody hello{};
  hello.magic = wire::hello_magic;
  hello.version = wire::protocol_version;
  hello.token = move_key;
  hello.session = session;
  hello.pid = static_cast<std::uint64_t>(::getpid());
  if (wire::WorkerAddress::parse(address, worker, error)) {
    static_cast<void>(wire::ways_to(worker, ways, error));
  }
  for (const wire::Transport way : ways) {
    auto stream = wire::dial(worker, way, dial_timeout_ms, error);
    if (stream == nullptr) continue;
    if (send_frame(*stream, wire::flag_ask, std::as_bytes(std::span(&hello, 1)))) return stream;
    error = "it hangs up";
  }
  throw std::runtime_error("the session's worker cannot be reached: " + error);
}

}  // namespace

bool SessionSender::reply(std::uint64_t sequence, const std::string& refusal,
                          std::span<const std::byte> payload) {
  wire::Buffer frame;
  const wire::FrameHeader empty{};
  frame.append(&empty, sizeof(empty));
  const wire::ReplyHeader result{refusal.empty() ? 0 : refused_result, 0, 0, wire::Status::ok};
  frame.append(&result, sizeof(result));
  wire::Writer out(frame);
  out.put_text(refusal);
  const std::uint64_t size = payload.size();
  out.put(size);
  const wire::FrameHeader header = header_of(frame.size(), wire::flag_reply | wire::flag_bulk, sequence);
  std::memcpy(frame.data(), &header, sizeof(header));
  iovec parts[] = {{frame.data(), frame.size()}, {const_cast<std::byte*>(payload.data()), payload.size()}};
  return stream_.send_parts(parts, payload.empty() ? 1 : 2);
}

MoveResult SessionSender::send(SessionWriter& writer, const std::function<bool()>& cancelled) {
  MoveResult result;
  const auto ends = [&](const char* why) {
    std::fprintf(stderr, "gpupool-worker: the session was not handed over: %s\n", why);
    result.refusal = "failed";
    return result;
  };
  writer.read_all([](std::span<const std::byte>) {}, cancelled);
  const std::vector<std::byte> manifest = writer.image().encode();
  if (!reply(0, {}, manifest)) return ends("the other worker is gone");
  const auto& chunks = writer.image().chunks;
  for (;;) {
    wire::FrameHeader header{};
    std::span<const std::byte> body;
    if (!receiver_.receive(header, body)) return ends("the other worker is gone");
    if (header.message != static_cast<std::uint16_t>(wire::Control::session))
      return ends("it says other things");
    if (header.flags == 0 && body.empty()) break;  // it has the session
    if (header.flags != wire::flag_ask || body.size() % sizeof(std::uint32_t) != 0) {
      return ends("it says other things");
    }
    std::vector<std::uint32_t> wanted(body.size() / sizeof(std::uint32_t));
    if (!wanted.empty()) std::memcpy(wanted.data(), body.data(), body.size());
    for (const std::uint32_t number : wanted) {
      if (number >= chunks.size()) return ends("it wants what there is not");
      if (cancelled()) return ends("nobody waits for it any more");
      bool sent = false;
      writer.read_again(number, [&](std::span<const std::byte> chunk) { sent = reply(number, {}, chunk); });
      if (!sent) return ends("the other worker is gone");
      result.bytes += chunks[number].size;
      ++result.chunks;
    }
  }
  if (cancelled()) return ends("nobody waits for it any more");
  return result;
}

void SessionSender::conclude(const std::string& refusal) {
  static_cast<void>(reply(0, refusal, {}));
}

SessionFetcher::SessionFetcher(const std::string& address, const std::array<std::uint8_t, 32>& move_key,
                               const std::array<std::uint8_t, 16>& session)
    : SessionFetcher(dial_worker(address, move_key, session)) {}

SessionFetcher::SessionFetcher(std::unique_ptr<wire::Stream> stream)
    : stream_(std::move(stream)), receiver_(*stream_) {
  const std::uint64_t size = receive_reply(0);
  if (size > SessionImage::largest_manifest)
    throw std::runtime_error("the manifest of the session is too large");
  // Taken in parts: memory is used for what has come, not for what was announced.
  std::vector<std::byte> manifest;
  while (manifest.size() < size) {
    const std::size_t at = manifest.size();
    manifest.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size, at + (std::size_t{4} << 20))));
    if (!receiver_.take(manifest.data() + at, manifest.size() - at)) {
      throw std::runtime_error("the connection to the session's worker broke");
    }
  }
  std::string error;
  auto image = SessionImage::decode(manifest, error);
  if (!image) throw std::runtime_error("the session's worker sent no image: " + error);
  image_ = std::move(*image);
}

std::uint64_t SessionFetcher::receive_reply(std::uint64_t sequence) {
  wire::FrameHeader header{};
  std::span<const std::byte> body;
  if (!receiver_.receive(header, body)) {
    throw std::runtime_error("the connection to the session's worker broke");
  }
  wire::Reader in(body);
  const auto result = in.get<wire::ReplyHeader>();
  const std::string refusal(in.get_text().substr(0, 200));
  const auto size = in.get<std::uint64_t>();
  if (header.message != static_cast<std::uint16_t>(wire::Control::session) ||
      header.flags != (wire::flag_reply | wire::flag_bulk) || !in.finished() || header.sequence != sequence) {
    throw std::runtime_error("the session's worker answers with something else");
  }
  if (result.result != 0) throw std::runtime_error("the session's worker does not hand it over: " + refusal);
  return size;
}

void SessionFetcher::announce(const std::vector<std::uint32_t>& numbers) {
  for (std::size_t at = 0; at < numbers.size(); at += numbers_at_once) {
    const auto part = std::span(numbers).subspan(at, std::min(numbers_at_once, numbers.size() - at));
    if (!send_frame(*stream_, wire::flag_ask, std::as_bytes(part))) {
      throw std::runtime_error("the connection to the session's worker broke");
    }
  }
}

void SessionFetcher::read(const SessionImage::Chunk&, std::uint32_t number, std::span<std::byte> into) {
  if (receive_reply(number) != into.size()) {
    throw std::runtime_error("the session's worker answers with something else");
  }
  if (!receiver_.take(into.data(), into.size())) {
    throw std::runtime_error("the connection to the session's worker broke");
  }
}

void SessionFetcher::take_over() {
  if (!send_frame(*stream_, 0, {})) throw std::runtime_error("the connection to the session's worker broke");
  static_cast<void>(receive_reply(0));
}

}  // namespace gpupool::worker
