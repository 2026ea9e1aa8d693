// The connections of one rank to all others, and messages over them.
//
// A message has a kind. Messages of one kind from one rank arrive in their order, and are taken in the order
// in which they are expected; kinds do not wait for each other. What nobody expects yet is kept, up to
// `most_early` bytes of each rank; then nothing is read from that rank until something of it is expected.
//
// States of a peer: open; gone (its connection ended or failed; `said_goodbye` when it meant to). A peer that
// is gone matters only while something is wanted of it or goes to it: then Failure(remote_error). What it
// had sent before is taken as ever.
//
// Not thread-safe: the communicator's mutex is held.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "libraries/nccl/socket.h"

namespace gpupool::nccl {

enum class Lane : std::uint32_t { collective, pairs, goodbye };
constexpr int lanes = 2;
constexpr std::size_t most_bytes = std::size_t{4} << 20;   ///< of a message
constexpr std::size_t most_early = std::size_t{64} << 20;  ///< of one rank, kept until they are expected

/// Something that comes. Its owner keeps it, and where it goes, until it is done.
struct Incoming {
  int from = 0;
  Lane lane = Lane::collective;
  std::span<std::byte> bytes;
  bool done = false;
};

/// Something that goes. Its owner keeps it, and what it holds, until it is done.
struct Outgoing {
  int to = 0;
  Lane lane = Lane::collective;
  std::span<const std::byte> bytes;
  bool done = false;
};

class Mesh {
 public:
  Mesh(int rank, std::vector<Socket> sockets);
  ~Mesh();

  void expect(Incoming& incoming);
  void post(Outgoing& outgoing);
  /// What it waits for, to `polled`.
  void add_to(std::vector<pollfd>& polled) const;
  /// Sends and receives what goes without waiting. Throws Failure.
  void move();
  /// A rank ended without a word.
  [[nodiscard]] bool has_lost_one() const;
  /// All connections end at once; what was posted or expected is forgotten.
  void close();

 private:
  struct Header {
    std::uint32_t magic;
    Lane lane;
    std::uint64_t bytes;
  };
  struct Peer {
    Socket socket;
    bool gone = false;
    bool said_goodbye = false;
    std::deque<Incoming*> expected[lanes];
    std::deque<std::vector<std::byte>> early[lanes];
    std::size_t early_bytes = 0;
    std::deque<Outgoing*> posted;
    Header sent_header{};
    std::size_t sent = 0;  ///< of the first of `posted`, with its header
    Header header{};
    std::size_t got = 0;        ///< of the message that comes, with its header
    Incoming* taker = nullptr;  ///< of that message; null: it goes to `unexpected`
    std::vector<std::byte> unexpected;
  };

  [[nodiscard]] bool reads(const Peer& peer) const;
  void send_some(Peer& peer);
  void receive_some(Peer& peer);
  void begin_message(Peer& peer);
  void end_message(Peer& peer);
  void keep(Peer& peer, Lane lane, std::vector<std::byte> bytes);

  int rank_;
  std::vector<Peer> peers_;
};

}  // namespace gpupool::nccl
