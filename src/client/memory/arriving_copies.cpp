#include "client/memory/arriving_copies.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/process/session_belongings.h"
#include "generated/wire/control.h"

namespace gpupool::client {

ArrivingCopies& arriving_copies() {
  static ArrivingCopies& only = kept_for_session<ArrivingCopies>([](ArrivingCopies& kept) { kept.forget(); });
  return only;
}

void ArrivingCopies::listen(Connection& connection, const WorkerLink& worker) {
  connection.on_push(wire::Control::copied, [this, &worker](std::span<const std::byte> body,
                                                            wire::Receiver& receiver, std::uint64_t payload) {
    return take(worker, body, receiver, payload);
  });
}

bool ArrivingCopies::take(const WorkerLink& worker, std::span<const std::byte> body, wire::Receiver& receiver,
                          std::uint64_t payload) {
  wire::Copied copied;
  if (!wire::unpack(body, copied)) return false;
  Piece piece{};
  {
    const MutexLock lock(mutex_);
    const auto found = pieces_.find(copied.ticket);
    if (found == pieces_.end() || found->second.worker != worker.index) return false;
    piece = found->second;
  }
  if (payload != (copied.result == CUDA_SUCCESS ? piece.size : 0)) return false;
  // The memory stays: whoever wants to take it away waits for this piece in settle().
  if (payload > 0 && !receiver.take(piece.to, payload)) return false;
  runtime().counters.received(payload);
  end(copied.ticket);
  return true;
}

bool ArrivingCopies::reserve(const Piece& piece, std::uint64_t& ticket) {
  const MutexLock lock(mutex_);
  const bool small = is_small(piece.size);
  std::size_t& count = under_way_[piece.worker][small ? 1 : 0];
  if (count >= (small ? wire::small_pieces : wire::large_pieces)) return false;
  pieces_.emplace(last_ticket_ + 1, piece);
  ticket = ++last_ticket_;
  ++count;
  return true;
}

void ArrivingCopies::end(std::uint64_t ticket) {
  const MutexLock lock(mutex_);
  const auto found = pieces_.find(ticket);
  if (found == pieces_.end()) return;
  --under_way_[found->second.worker][is_small(found->second.size) ? 1 : 0];
  pieces_.erase(found);
}

CUresult ArrivingCopies::copy(void* to, CUdeviceptr from, std::size_t size, std::uint64_t stream,
                              std::uint64_t context) {
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  const WorkerLink& worker = stream > 2 ? worker_of_stream(stream) : worker_of_context(context);
  for (std::size_t done = 0; done < size;) {
    const std::size_t part = std::min(size - done, wire::largest_piece);
    std::uint64_t ticket = 0;
    const Piece piece{static_cast<std::byte*>(to) + done, part,        stream, context,
                      done + part == size ? size : 0,     worker.index};
    const auto reserved = [&] { return reserve(piece, ticket); };
    if (!reserved()) {
      if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
      if (!worker.connection.load()->read_until(reserved)) return runtime().lost();
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

template <class Awaited>
void ArrivingCopies::count_waits(const Awaited& awaited) {
  const MutexLock lock(mutex_);
  for (auto& [ticket, piece] : pieces_) {
    if (piece.uncounted > 0 && awaited(piece)) {
      runtime().counters.waited_for_copy(std::exchange(piece.uncounted, 0));
    }
  }
}

void ArrivingCopies::stream_awaited(std::uint64_t stream, std::uint64_t context) {
  count_waits(
      [&](const Piece& piece) { return piece.stream == stream && (stream > 2 || piece.context == context); });
}

void ArrivingCopies::context_awaited(std::uint64_t context) {
  count_waits([&](const Piece& piece) { return piece.context == context; });
}

void ArrivingCopies::settle(const void* start, std::size_t size) {
  const auto* const first = static_cast<const std::byte*>(start);
  unsigned worker = 0;
  const auto settled = [&] {
    const MutexLock lock(mutex_);
    return std::none_of(pieces_.begin(), pieces_.end(), [&](const auto& entry) {
      return entry.second.worker == worker && entry.second.to < first + size &&
             first < entry.second.to + entry.second.size;
    });
  };
  for (; worker < runtime().workers(); ++worker) {
    if (!settled()) static_cast<void>(runtime().worker(worker).connection.load()->read_until(settled));
  }
}

void ArrivingCopies::forget() {
  const MutexLock lock(mutex_);
  pieces_.clear();
  under_way_ = {};
}

}  // namespace gpupool::client
