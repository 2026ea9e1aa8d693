#include "libraries/nccl/mesh.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "libraries/nccl/status.h"

namespace gpupool::nccl {
namespace {

constexpr std::uint32_t message_magic = 0x6770'6e02;

std::size_t place_of(Lane lane) {
  return static_cast<std::size_t>(lane);
}

/// Bytes given or taken; 0 when it would wait; -1 when the connection is over.
ssize_t transferred(ssize_t result, bool receiving) {
  if (result > 0) return result;
  if (result == 0 && receiving) return -1;
  return result == 0 || errno == EAGAIN || errno == EINTR ? 0 : -1;
}

void fill(Incoming& incoming, std::span<const std::byte> bytes) {
  require(bytes.size() == incoming.bytes.size(), "ranks do not agree on the size of what they exchange",
          invalid_usage);
  std::copy(bytes.begin(), bytes.end(), incoming.bytes.begin());
  incoming.done = true;
}

}  // namespace

Mesh::Mesh(int rank, std::vector<Socket> sockets) : rank_(rank), peers_(sockets.size()) {
  for (std::size_t i = 0; i < sockets.size(); ++i) peers_[i].socket = std::move(sockets[i]);
}

Mesh::~Mesh() {
  const Header goodbye{message_magic, Lane::goodbye, 0};
  for (const Peer& peer : peers_) {
    // A word in the middle of a message would be taken for a part of it.
    if (!peer.socket || peer.gone || peer.sent != 0) continue;
    static_cast<void>(send(peer.socket.descriptor(), &goodbye, sizeof(goodbye), MSG_NOSIGNAL));
  }
}

void Mesh::close() {
  for (Peer& peer : peers_) {
    peer = Peer();
    peer.gone = true;
  }
}

void Mesh::expect(Incoming& incoming) {
  Peer& peer = peers_[static_cast<std::size_t>(incoming.from)];
  auto& early = peer.early[place_of(incoming.lane)];
  if (early.empty()) {
    peer.expected[place_of(incoming.lane)].push_back(&incoming);
    return;
  }
  const std::vector<std::byte> bytes = std::move(early.front());
  early.pop_front();
  peer.early_bytes -= bytes.size();
  fill(incoming, bytes);
}

void Mesh::keep(Peer& peer, Lane lane, std::vector<std::byte> bytes) {
  peer.early_bytes += bytes.size();
  peer.early[place_of(lane)].push_back(std::move(bytes));
}

void Mesh::post(Outgoing& outgoing) {
  Peer& peer = peers_[static_cast<std::size_t>(outgoing.to)];
  if (outgoing.to != rank_) {
    peer.posted.push_back(&outgoing);
    return;
  }
  auto& expected = peer.expected[place_of(outgoing.lane)];
  if (expected.empty()) {
    keep(peer, outgoing.lane, {outgoing.bytes.begin(), outgoing.bytes.end()});
  } else {
    Incoming& incoming = *expected.front();
    expected.pop_front();
    fill(incoming, outgoing.bytes);
  }
  outgoing.done = true;
}

bool Mesh::reads(const Peer& peer) const {
  return peer.early_bytes <= most_early || !peer.expected[0].empty() || !peer.expected[1].empty();
}

void Mesh::add_to(std::vector<pollfd>& polled) const {
  for (const Peer& peer : peers_) {
    if (!peer.socket || peer.gone) continue;
    const int events = (reads(peer) ? POLLIN : 0) | (peer.posted.empty() ? 0 : POLLOUT);
    if (events != 0) polled.push_back({peer.socket.descriptor(), static_cast<short>(events), 0});
  }
}

void Mesh::move() {
  for (Peer& peer : peers_) {
    if (!peer.socket) continue;
    send_some(peer);
    receive_some(peer);
    const bool wanted = !peer.posted.empty() || !peer.expected[0].empty() || !peer.expected[1].empty();
    require(!peer.gone || !wanted, "a rank is gone", remote_error);
  }
}

bool Mesh::has_lost_one() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.gone && !peer.said_goodbye; });
}

void Mesh::send_some(Peer& peer) {
  while (!peer.gone && !peer.posted.empty()) {
    Outgoing& outgoing = *peer.posted.front();
    if (peer.sent == 0) peer.sent_header = {message_magic, outgoing.lane, outgoing.bytes.size()};
    const bool in_header = peer.sent < sizeof(Header);
    const std::span<const std::byte> rest =
        in_header ? std::as_bytes(std::span(&peer.sent_header, 1)).subspan(peer.sent)
                  : outgoing.bytes.subspan(peer.sent - sizeof(Header));
    if (!rest.empty()) {
      // The beginning of a message waits for its content, so that they leave together.
      const int flags = MSG_NOSIGNAL | (in_header && !outgoing.bytes.empty() ? MSG_MORE : 0);
      const ssize_t sent =
          transferred(send(peer.socket.descriptor(), rest.data(), rest.size(), flags), false);
      if (sent < 0) peer.gone = true;
      if (sent <= 0) return;
      peer.sent += static_cast<std::size_t>(sent);
    }
    if (peer.sent < sizeof(Header) + outgoing.bytes.size()) continue;
    peer.sent = 0;
    peer.posted.pop_front();
    outgoing.done = true;
  }
}

void Mesh::begin_message(Peer& peer) {
  const bool known = peer.header.lane <= Lane::goodbye;
  require(peer.header.magic == message_magic && known && peer.header.bytes <= most_bytes,
          "a rank sent what is no message", remote_error);
  peer.taker = nullptr;
  peer.unexpected.clear();
  if (peer.header.lane == Lane::goodbye) {
    peer.said_goodbye = true;
    peer.header.bytes = 0;
    return;
  }
  auto& expected = peer.expected[place_of(peer.header.lane)];
  if (expected.empty()) {
    peer.unexpected.resize(peer.header.bytes);
    return;
  }
  peer.taker = expected.front();
  require(peer.taker->bytes.size() == peer.header.bytes,
          "ranks do not agree on the size of what they exchange", invalid_usage);
}

void Mesh::end_message(Peer& peer) {
  peer.got = 0;
  if (peer.header.lane == Lane::goodbye) return;
  auto& expected = peer.expected[place_of(peer.header.lane)];
  if (peer.taker != nullptr) {
    peer.taker->done = true;
    peer.taker = nullptr;
    expected.pop_front();
  } else if (!expected.empty()) {
    // Expected since it began to come.
    Incoming& incoming = *expected.front();
    expected.pop_front();
    fill(incoming, peer.unexpected);
  } else {
    keep(peer, peer.header.lane, std::move(peer.unexpected));
    peer.unexpected = {};
  }
}

void Mesh::receive_some(Peer& peer) {
  while (!peer.gone && reads(peer)) {
    const bool in_header = peer.got < sizeof(Header);
    std::span<std::byte> rest;
    if (in_header) {
      rest = std::as_writable_bytes(std::span(&peer.header, 1)).subspan(peer.got);
    } else {
      const std::span<std::byte> whole =
          peer.taker != nullptr ? peer.taker->bytes : std::span(peer.unexpected);
      rest = whole.subspan(std::min(whole.size(), peer.got - sizeof(Header)));
    }
    if (!rest.empty()) {
      const ssize_t got = transferred(recv(peer.socket.descriptor(), rest.data(), rest.size(), 0), true);
      if (got < 0) peer.gone = true;
      if (got <= 0) return;
      peer.got += static_cast<std::size_t>(got);
      if (in_header && peer.got == sizeof(Header)) begin_message(peer);
    }
    if (peer.got >= sizeof(Header) && peer.got == sizeof(Header) + peer.header.bytes) end_message(peer);
  }
}

}  // namespace gpupool::nccl
