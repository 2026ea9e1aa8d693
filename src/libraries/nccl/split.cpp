// Two rounds of messages between the ranks of the parent: who has which color and key; then the first rank of
// each color, which made a unique id, sends it to the others of that color. With it they meet as ever.
#include "libraries/nccl/split.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>

#include "libraries/nccl/context.h"

namespace gpupool::nccl {
namespace {

/// How late an abort is noticed at most.
constexpr int poll_milliseconds = 20;

struct Wish {
  std::int32_t color, key;
};

/// Messages of the parent's ranks, outside of any plan; its `busy` is held.
class Round {
 public:
  explicit Round(Communicator& parent) : parent_(parent) {}

  void send(int rank, std::span<const std::byte> bytes) {
    parent_.mesh->post(outgoing_.emplace_back(Outgoing{rank, Lane::collective, bytes}));
  }
  void receive(int rank, std::span<std::byte> bytes) {
    parent_.mesh->expect(incoming_.emplace_back(Incoming{rank, Lane::collective, bytes}));
  }
  void finish() {
    const auto is_done = [](const auto& one) { return one.done; };
    while (!std::all_of(incoming_.begin(), incoming_.end(), is_done) ||
           !std::all_of(outgoing_.begin(), outgoing_.end(), is_done)) {
      require(!parent_.stop.load(), "the communicator was aborted", invalid_usage);
      parent_.mesh->move();
      std::vector<pollfd> polled;
      parent_.mesh->add_to(polled);
      const int found = poll(polled.data(), polled.size(), poll_milliseconds);
      require(found >= 0 || errno == EINTR, "poll failed", system_error);
    }
  }

 private:
  Communicator& parent_;
  std::deque<Incoming> incoming_;
  std::deque<Outgoing> outgoing_;
};

/// A rank's place in the communicator that it will be in.
struct Place {
  UniqueId id{};
  int rank = 0, ranks = 0;
};

std::optional<Place> find_place(Communicator& parent, const Wish& own) {
  std::vector<Wish> wishes(static_cast<std::size_t>(parent.ranks));
  const auto each_other = [&](auto f) {
    for (int rank = 0; rank < parent.ranks; ++rank) {
      if (rank != parent.rank) f(rank);
    }
  };
  {
    Round round(parent);
    each_other([&](int rank) {
      round.send(rank, std::as_bytes(std::span(&own, 1)));
      round.receive(rank, std::as_writable_bytes(std::span(&wishes[static_cast<std::size_t>(rank)], 1)));
    });
    round.finish();
  }
  wishes[static_cast<std::size_t>(parent.rank)] = own;
  if (own.color == no_color) return std::nullopt;
  std::vector<int> members;
  for (int rank = 0; rank < parent.ranks; ++rank) {
    if (wishes[static_cast<std::size_t>(rank)].color == own.color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  Place place;
  place.ranks = static_cast<int>(members.size());
  place.rank = static_cast<int>(std::find(members.begin(), members.end(), parent.rank) - members.begin());
  Round round(parent);
  if (place.rank == 0) {
    place.id = unique_id();
    for (std::size_t i = 1; i < members.size(); ++i)
      round.send(members[i], std::as_bytes(std::span(&place.id, 1)));
  } else {
    round.receive(members[0], std::as_writable_bytes(std::span(&place.id, 1)));
  }
  round.finish();
  return place;
}

}  // namespace

std::shared_ptr<Communicator> split(Communicator& parent, int color, int key) {
  std::optional<Place> place;
  {
    const std::lock_guard lock(parent.busy);
    parent.require_working();
    try {
      place = find_place(parent, {color, key});
    } catch (const Failure& failure) {
      parent.end(failure.result);
      throw;
    } catch (...) {
      parent.end(internal_error);  // its mesh may still know messages of the rounds
      throw;
    }
  }
  if (!place) return nullptr;
  const InContext inside(parent.context);
  return make_communicator(place->id, place->rank, place->ranks);
}

}  // namespace gpupool::nccl
