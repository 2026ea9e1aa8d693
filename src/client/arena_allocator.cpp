#include "client/arena_allocator.h"

#include <algorithm>

namespace gpupool::client {
namespace {

constexpr std::uint64_t max_idle = std::uint64_t{256}
                                   << 20;  // free chunks kept mapped, to make alloc + free cheap

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

ArenaAllocator::ArenaAllocator(std::uint64_t base, std::uint64_t size, std::uint64_t granularity,
                               std::uint64_t limit)
    : base_(base), size_(size), granularity_(granularity), limit_(std::min(limit, size)) {}

std::optional<std::uint64_t> ArenaAllocator::find_gap(std::uint64_t size) const {
  std::uint64_t at = base_;
  for (const auto& [address, chunk] : chunks_) {
    if (address - at >= size) return at;
    at = address + chunk.size;
  }
  return base_ + size_ - at >= size ? std::optional(at) : std::nullopt;
}

std::optional<ArenaAllocator::Allocation> ArenaAllocator::allocate(std::uint64_t size, std::uint64_t work,
                                                                   std::uint64_t stream, std::uint64_t owner,
                                                                   std::uint64_t aligned) {
  if (size == 0 || size > limit_) return std::nullopt;
  const std::uint64_t wanted = round_up(size, aligned);
  Allocation result;
  for (auto fit = free_.lower_bound({wanted, 0}); fit != free_.end(); ++fit) {
    const auto [room, begin] = *fit;
    const std::uint64_t start = round_up(begin, aligned);
    if (start - begin > room - wanted) continue;
    const auto chunk = chunk_of(begin);
    const Piece& piece = chunk->second.pieces.at(begin);
    const bool same_stream = stream != 0 && piece.freed_on == stream && !piece.mixed;
    result.address = start;
    result.fresh = piece.freed_at == 0;
    result.barrier = dirty(piece) && !same_stream;
    if (result.barrier) settled(work);
    if (start > begin) cut_front(chunk, begin, start - begin);
    take(chunk, start, wanted, size, owner);
    return result;
  }
  const std::uint64_t chunk_size = round_up(wanted, granularity_);
  if (!fits(chunk_size)) result.unmap = trim();
  const auto gap = fits(chunk_size) ? find_gap(chunk_size) : std::nullopt;
  if (!gap) {
    // The caller still has to unmap what was trimmed, but there is no address: say so by address 0.
    if (result.unmap.empty()) return std::nullopt;
    return result;
  }
  result.map = Range{*gap, chunk_size};
  result.address = *gap;
  result.fresh = true;
  auto [chunk, fresh] = chunks_.emplace(*gap, Chunk{chunk_size, {}});
  chunk->second.pieces.emplace(*gap, Piece{chunk_size, 0, false, 0, 0, false, 0});
  free_.insert({chunk_size, *gap});
  mapped_ += chunk_size;
  idle_ += chunk_size;
  take(chunk, *gap, wanted, size, owner);
  return result;
}

/// Splits the free piece at `at` so that one begins `bytes` behind it.
void ArenaAllocator::cut_front(Chunks::iterator chunk, std::uint64_t at, std::uint64_t bytes) {
  auto& pieces = chunk->second.pieces;
  if (pieces.size() == 1) idle_ -= chunk->second.size;  // the piece behind is taken next
  Piece& front = pieces.at(at);
  Piece rest = front;
  free_.erase({front.size, at});
  front.size = bytes;
  rest.size -= bytes;
  free_.insert({front.size, at});
  free_.insert({rest.size, at + bytes});
  pieces.emplace(at + bytes, rest);
}

std::optional<std::uint64_t> ArenaAllocator::set_aside(std::uint64_t size, std::uint64_t aligned,
                                                       std::uint64_t wish) {
  if (size == 0 || size > size_) return std::nullopt;
  std::optional<std::uint64_t> place;
  // From the top, so that large reservations do not lie between the chunks. Gaps end where a chunk begins.
  std::uint64_t end = base_ + size_;
  const auto look = [&](std::uint64_t begin) {
    if (end - begin < size) return;
    if (wish != 0 && wish % aligned == 0 && wish >= begin && wish <= end - size) {
      place = wish;
    } else if (const std::uint64_t start = (end - size) / aligned * aligned; start >= begin && !place) {
      place = start;
    }
  };
  for (auto chunk = chunks_.rbegin(); chunk != chunks_.rend() && (!place || (wish != 0 && *place != wish));
       ++chunk) {
    look(chunk->first + chunk->second.size);
    end = chunk->first;
  }
  if (!place || (wish != 0 && *place != wish)) look(base_);
  if (place) chunks_.emplace(*place, Chunk{size, {}});
  return place;
}

bool ArenaAllocator::give_back(std::uint64_t address, std::uint64_t size) {
  const auto chunk = chunks_.find(address);
  if (chunk == chunks_.end() || !chunk->second.pieces.empty() || chunk->second.size != size) return false;
  chunks_.erase(chunk);
  return true;
}

bool ArenaAllocator::charge(std::uint64_t bytes, std::vector<Range>& unmap) {
  if (!fits(bytes)) unmap = trim();
  if (!fits(bytes)) return false;
  charged_ += bytes;
  return true;
}

void ArenaAllocator::take(Chunks::iterator chunk, std::uint64_t at, std::uint64_t size,
                          std::uint64_t requested, std::uint64_t owner) {
  auto& pieces = chunk->second.pieces;
  if (pieces.size() == 1) idle_ -= chunk->second.size;
  Piece& piece = pieces.at(at);
  free_.erase({piece.size, at});
  if (piece.size > size) {
    Piece rest = piece;
    rest.size -= size;
    free_.insert({rest.size, at + size});
    pieces.emplace(at + size, rest);
  }
  piece = Piece{size, requested, true, 0, 0, false, owner};
  used_ += size;
}

bool ArenaAllocator::free(std::uint64_t address, std::uint64_t work, std::uint64_t stream,
                          std::vector<Range>& unmap) {
  const auto chunk = chunk_of(address);
  if (chunk == chunks_.end()) return false;
  const auto piece = chunk->second.pieces.find(address);
  if (piece == chunk->second.pieces.end() || !piece->second.used) return false;
  used_ -= piece->second.size;
  piece->second.used = false;
  piece->second.requested = 0;
  piece->second.owner = 0;
  piece->second.freed_at = work;
  piece->second.freed_on = stream;
  piece->second.mixed = false;
  merge(chunk->second, address);
  if (chunk->second.pieces.size() == 1) {
    idle_ += chunk->second.size;
    if (idle_ > std::min(max_idle, limit_ / 2)) drop_chunk(chunk, unmap);
  }
  return true;
}

/// Joins the free piece at `at` with free neighbours and enters it into free_.
std::uint64_t ArenaAllocator::merge(Chunk& chunk, std::uint64_t at) {
  const auto join = [&](Piece& into, const Piece& from) {
    into.mixed = into.mixed || from.mixed || (dirty(from) && dirty(into) && from.freed_on != into.freed_on);
    if (dirty(from)) into.freed_on = from.freed_on;
    into.freed_at = std::max(into.freed_at, from.freed_at);
    into.size += from.size;
  };
  auto piece = chunk.pieces.find(at);
  if (const auto next = std::next(piece); next != chunk.pieces.end() && !next->second.used) {
    free_.erase({next->second.size, next->first});
    join(piece->second, next->second);
    chunk.pieces.erase(next);
  }
  if (piece != chunk.pieces.begin()) {
    const auto before = std::prev(piece);
    if (!before->second.used) {
      free_.erase({before->second.size, before->first});
      join(before->second, piece->second);
      chunk.pieces.erase(piece);
      piece = before;
    }
  }
  free_.insert({piece->second.size, piece->first});
  return piece->first;
}

void ArenaAllocator::drop_chunk(Chunks::iterator chunk, std::vector<Range>& unmap) {
  unmap.push_back({chunk->first, chunk->second.size});
  free_.erase({chunk->second.size, chunk->first});
  mapped_ -= chunk->second.size;
  idle_ -= chunk->second.size;
  chunks_.erase(chunk);
}

std::vector<ArenaAllocator::Range> ArenaAllocator::trim() {
  std::vector<Range> unmap;
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    const auto chunk = at++;
    if (chunk->second.pieces.size() == 1 && !chunk->second.pieces.begin()->second.used)
      drop_chunk(chunk, unmap);
  }
  return unmap;
}

std::uint64_t ArenaAllocator::largest_gap() const {
  std::uint64_t at = base_, largest = 0;
  for (const auto& [address, chunk] : chunks_) {
    if (chunk.pieces.size() == 1 && !chunk.pieces.begin()->second.used) continue;
    largest = std::max(largest, address - at);
    at = address + chunk.size;
  }
  return std::max(largest, base_ + size_ - at);
}

std::uint64_t ArenaAllocator::largest_free() const {
  const std::uint64_t kept = taken() - idle_;  // a new chunk makes room for itself
  const std::uint64_t room = std::min(limit_ > kept ? limit_ - kept : 0, largest_gap());
  const std::uint64_t piece = free_.empty() ? 0 : free_.rbegin()->first;
  return std::max(std::min(piece, limit_), room / granularity_ * granularity_);
}

std::uint64_t ArenaAllocator::needed_for(std::uint64_t size, std::uint64_t aligned) const {
  const std::uint64_t kept = taken() - idle_;
  constexpr std::uint64_t most = ~std::uint64_t{0};
  if (size > most - kept - aligned - granularity_) return most;
  return kept + round_up(round_up(size, aligned), granularity_);
}

void ArenaAllocator::settled(std::uint64_t work) {
  settled_ = std::max(settled_, work);
}

ArenaAllocator::Chunks::iterator ArenaAllocator::chunk_of(std::uint64_t address) {
  auto at = chunks_.upper_bound(address);
  if (at == chunks_.begin()) return chunks_.end();
  --at;
  return address - at->first < at->second.size ? at : chunks_.end();
}

std::optional<ArenaAllocator::Block> ArenaAllocator::find(std::uint64_t address) const {
  auto chunk = chunks_.upper_bound(address);
  if (chunk == chunks_.begin()) return std::nullopt;
  --chunk;
  auto piece = chunk->second.pieces.upper_bound(address);
  if (piece == chunk->second.pieces.begin()) return std::nullopt;
  --piece;
  if (!piece->second.used || address - piece->first >= std::max<std::uint64_t>(piece->second.requested, 1)) {
    return std::nullopt;
  }
  return Block{piece->first, piece->second.requested, piece->second.size, piece->second.owner};
}

std::vector<ArenaAllocator::Block> ArenaAllocator::blocks() const {
  std::vector<Block> all;
  for (const auto& [start, chunk] : chunks_) {
    for (const auto& [address, piece] : chunk.pieces) {
      if (piece.used) all.push_back({address, piece.requested, piece.size, piece.owner});
    }
  }
  return all;
}

const char* ArenaAllocator::inconsistency() const {
  std::uint64_t used = 0, mapped = 0, idle = 0;
  std::size_t unused = 0;
  std::uint64_t end = base_;
  for (const auto& [start, chunk] : chunks_) {
    if (start < end) return "chunks overlap";
    if (chunk.pieces.empty()) {
      end = start + chunk.size;
      continue;
    }
    if (start % granularity_ != 0 || chunk.size % granularity_ != 0) return "a chunk is misaligned";
    end = start + chunk.size;
    mapped += chunk.size;
    std::uint64_t at = start;
    bool before_free = false;
    for (const auto& [address, piece] : chunk.pieces) {
      if (address != at) return "pieces leave a gap or overlap";
      if (piece.size == 0 || piece.size % alignment != 0) return "a piece has a bad size";
      if (piece.used) {
        used += piece.size;
        if (piece.requested > piece.size) return "a block is smaller than what was asked for";
      } else {
        if (before_free) return "free neighbours were not joined";
        if (!free_.contains({piece.size, address})) return "a free piece is not listed";
        ++unused;
        if (chunk.pieces.size() == 1) idle += chunk.size;
      }
      before_free = !piece.used;
      at += piece.size;
    }
    if (at != end) return "pieces do not fill their chunk";
  }
  if (end > base_ + size_) return "a chunk lies outside the arena";
  if (unused != free_.size()) return "the list of free pieces holds more than there are";
  if (used != used_ || mapped != mapped_ || idle != idle_) return "a total is wrong";
  return nullptr;
}

}  // namespace gpupool::client
