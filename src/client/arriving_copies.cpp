#include "client/arriving_copies.h"

#include <algorithm>

#include "client/call.h"
#include "wire/completion.h"

namespace gpupool::client {

ArrivingCopies& arriving_copies() {
  static ArrivingCopies* const only = new ArrivingCopies;
  return *only;
}

void ArrivingCopies::listen(Connection& connection) {
  connection.on_push(wire::Control::copied,
                     [this](std::span<const std::byte> body, wire::Receiver& receiver,
                            std::uint64_t payload) { return take(body, receiver, payload); });
}

bool ArrivingCopies::take(std::span<const std::byte> body, wire::Receiver& receiver, std::uint64_t payload) {
  wire::Reader in(body);
  wire::Copied copied;
  if (!wire::Copied::decode(in, copied)) return false;
  Piece piece{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = pieces_.find(copied.ticket);
    if (found == pieces_.end()) return false;
    piece = found->second;
  }
  if (payload != (copied.result == CUDA_SUCCESS ? piece.size : 0)) return false;
  // The memory stays: whoever wants to take it away waits for this piece in settle().
  if (payload > 0 && !receiver.take(piece.to, payload)) return false;
  runtime().counters.received(payload);
  end(copied.ticket);
  return true;
}

bool ArrivingCopies::reserve(std::byte* to, std::size_t size, std::uint64_t& ticket) {
  const std::lock_guard lock(mutex_);
  std::size_t& count = under_way_[is_small(size) ? 1 : 0];
  if (count >= (is_small(size) ? wire::small_pieces : wire::large_pieces)) return false;
  pieces_.emplace(last_ticket_ + 1, Piece{to, size});
  ticket = ++last_ticket_;
  ++count;
  return true;
}

void ArrivingCopies::end(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(ticket);
  if (found == pieces_.end()) return;
  --under_way_[is_small(found->second.size) ? 1 : 0];
  pieces_.erase(found);
}

CUresult ArrivingCopies::copy(void* to, CUdeviceptr from, std::size_t size, std::uint64_t stream,
                              std::uint64_t context) {
  for (std::size_t done = 0; done < size;) {
    const std::size_t part = std::min(size - done, wire::largest_piece);
    std::uint64_t ticket = 0;
    const auto reserved = [&] { return reserve(static_cast<std::byte*>(to) + done, part, ticket); };
    if (!reserved()) {
      if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
      if (!runtime().connection().read_until(reserved)) return runtime().lost();
    }
    messages::CopyToHostAsync m;
    m.address = from + done;
    m.size = part;
    m.stream = stream;
    m.ticket = ticket;
    if (const CUresult bad = post(m, context); bad != CUDA_SUCCESS) {
      end(ticket);
      return bad;
    }
    done += part;
  }
  return CUDA_SUCCESS;
}

void ArrivingCopies::settle(const void* start, std::size_t size) {
  const auto* const first = static_cast<const std::byte*>(start);
  const auto settled = [&] {
    const std::lock_guard lock(mutex_);
    return std::none_of(pieces_.begin(), pieces_.end(), [&](const auto& entry) {
      return entry.second.to < first + size && first < entry.second.to + entry.second.size;
    });
  };
  if (!settled()) static_cast<void>(runtime().connection().read_until(settled));
}

}  // namespace gpupool::client
