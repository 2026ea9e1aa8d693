// Two steps. (1) Each rank listens, connects to the id's listener (the root) and says who it is; when all
// have, the root tells each where all listen. (2) Each rank connects to the ranks before it and accepts those
// after it. Every connection begins with the secret of the id: one without it is dropped, and delays the
// ranks for `hello_time` at most. What comes by the network is checked: ranks against bounds, addresses in
// connected_to.
#include "libraries/nccl/bootstrap.h"

#include <sys/random.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "libraries/nccl/status.h"

namespace gpupool::nccl {
namespace {

constexpr std::uint32_t id_magic = 0x6770'6e01;
constexpr auto hello_time = std::chrono::seconds(2);
constexpr auto root_time = std::chrono::minutes(30);

struct Hello {
  Secret secret;
  std::int32_t rank;
  std::int32_t ranks;
  Address listener;
};

/// Takes as long whatever differs.
bool is_secret(const Secret& a, const Secret& b) {
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different |= std::to_integer<unsigned>(a[i] ^ b[i]);
  return different == 0;
}

/// Nothing when whoever connected is none of the ranks.
std::optional<Hello> hello_of(const Socket& socket, const Secret& secret, const Patience& patience) {
  const Patience short_one{std::min(patience.end, Clock::now() + hello_time), patience.stop};
  try {
    const auto hello = receive_value<Hello>(socket, short_one);
    if (!is_secret(hello.secret, secret)) return std::nullopt;
    if (hello.ranks < 1 || hello.ranks > most_ranks || hello.rank < 0 || hello.rank >= hello.ranks)
      return std::nullopt;
    return hello;
  } catch (const Failure&) {
    return std::nullopt;
  }
}

void serve_as_root(const Socket& listener, const Secret& secret) {
  const Patience patience{Clock::now() + root_time};
  std::vector<Socket> sockets;
  std::vector<Address> addresses;
  for (int missing = -1; missing != 0;) {
    Socket socket = accepted(listener, patience);
    if (!socket) return;
    const auto hello = hello_of(socket, secret, patience);
    if (!hello) continue;
    if (missing < 0) {
      missing = hello->ranks;
      sockets.resize(static_cast<std::size_t>(missing));
      addresses.resize(static_cast<std::size_t>(missing));
    }
    const auto rank = static_cast<std::size_t>(hello->rank);
    // Another number of ranks, or a rank twice: it sees its connection end.
    if (static_cast<std::size_t>(hello->ranks) != sockets.size() || sockets[rank]) continue;
    sockets[rank] = std::move(socket);
    addresses[rank] = hello->listener;
    --missing;
  }
  for (const Socket& socket : sockets) {
    try {
      send_all(socket, std::as_bytes(std::span(addresses)), {Clock::now() + hello_time});
    } catch (const Failure&) {
      // It is gone, which the others find out when they want to reach it.
    }
  }
}

}  // namespace

UniqueId unique_id() {
  UniqueId id{};
  id.magic = id_magic;
  require(getrandom(id.secret.data(), id.secret.size(), 0) == static_cast<ssize_t>(id.secret.size()),
          "getrandom", system_error);
  auto listener = std::make_shared<Socket>(listening(id.listener));
  std::thread([listener, secret = id.secret] {
    // Whatever fails here fails at the ranks too, whose connections end with this thread.
    try {
      serve_as_root(*listener, secret);
    } catch (const std::exception&) {
    }
  }).detach();
  return id;
}

std::vector<Socket> meet(const UniqueId& id, int rank, int ranks, const Patience& patience) {
  require(id.magic == id_magic, "the unique id is not one of ncclGetUniqueId");
  Hello hello{id.secret, rank, ranks, {}};
  const Socket listener = listening(hello.listener);
  std::vector<Address> addresses(static_cast<std::size_t>(ranks));
  {
    const Socket root = connected_to(id.listener, patience);
    send_value(root, hello, patience);
    receive_all(root, std::as_writable_bytes(std::span(addresses)), patience);
  }
  std::vector<Socket> sockets(static_cast<std::size_t>(ranks));
  for (int other = 0; other < rank; ++other) {
    const auto place = static_cast<std::size_t>(other);
    sockets[place] = connected_to(addresses[place], patience);
    send_value(sockets[place], hello, patience);
  }
  for (int missing = ranks - 1 - rank; missing > 0;) {
    Socket socket = accepted(listener, patience);
    require(static_cast<bool>(socket), "a rank does not come", system_error);
    const auto other = hello_of(socket, id.secret, patience);
    if (!other || other->ranks != ranks || other->rank <= rank) continue;
    Socket& place = sockets[static_cast<std::size_t>(other->rank)];
    if (place) continue;
    place = std::move(socket);
    --missing;
  }
  return sockets;
}

}  // namespace gpupool::nccl
