#include "client/memory/arena_allocator.h"

#include <algorithm>
#include <iterator>
#include <utility>

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
    auto behind = start > begin ? make_piece() : Pieces::node_type();
    auto rest = room - (start - begin) > wanted ? make_piece() : Pieces::node_type();
    // From here on nothing throws.
    const auto at = chunk_of(begin);
    Chunk& chunk = at->second;
    Piece& piece = chunk.pieces.find(begin)->second;
    const bool same_stream = stream != 0 && piece.freed_on == stream && !piece.mixed;
    result.address = start;
    result.fresh = piece.freed_at == 0;
    result.barrier = dirty(piece) && !same_stream;
    if (result.barrier) settled(work);
    if (chunk.pieces.size() == 1) idle_ -= chunk.size;
    unlist(begin, piece);
    if (behind) {
      split(chunk, begin, start - begin, std::move(behind));
      list(begin, piece);
    }
    take(chunk, start, wanted, size, owner, std::move(rest));
    return result;
  }
  const std::uint64_t chunk_size = round_up(wanted, granularity_);
  Chunks made;
  Chunk& chunk = made.emplace(0, Chunk{chunk_size, {}}).first->second;
  chunk.pieces.insert(make_piece());
  auto rest = chunk_size > wanted ? make_piece() : Pieces::node_type();
  if (!fits(chunk_size)) result.unmap = trim();
  // From here on nothing throws.
  const auto gap = fits(chunk_size) ? find_gap(chunk_size) : std::nullopt;
  if (!gap) {
    // The caller still has to unmap what was trimmed, but there is no address: say so by address 0.
    if (result.unmap.empty()) return std::nullopt;
    return result;
  }
  result.map = Range{*gap, chunk_size};
  result.address = *gap;
  result.fresh = true;
  auto whole = chunk.pieces.extract(chunk.pieces.begin());
  whole.key() = *gap;
  whole.mapped().size = chunk_size;
  chunk.pieces.insert(std::move(whole));
  auto node = made.extract(made.begin());
  node.key() = *gap;
  Chunk& placed = chunks_.insert(std::move(node)).position->second;
  mapped_ += chunk_size;
  take(placed, *gap, wanted, size, owner, std::move(rest));
  return result;
}

void ArenaAllocator::cancel(const Allocation& allocation) noexcept {
  const auto at = chunk_of(allocation.address);
  if (at == chunks_.end()) return;
  Chunk& chunk = at->second;
  Piece& piece = chunk.pieces.find(allocation.address)->second;
  used_ -= piece.size;
  if (allocation.map) {  // the chunk holds this block, and what was left of it
    if (const auto rest = chunk.pieces.find(allocation.address + piece.size); rest != chunk.pieces.end())
      unlist(rest->first, rest->second);
    mapped_ -= chunk.size;
    chunks_.erase(at);
    return;
  }
  piece.used = false;
  piece.requested = 0;
  piece.owner = 0;
  // What lay here before may still be in use: the barrier that was to end that was not sent.
  piece.freed_at = allocation.fresh ? 0 : settled_ + 1;
  merge(chunk, allocation.address);
  if (chunk.pieces.size() == 1) idle_ += chunk.size;
}

ArenaAllocator::Pieces::node_type ArenaAllocator::make_piece() {
  Listing listing;
  listing.emplace(0, 0);
  Pieces made;
  made[0].entry = listing.extract(listing.begin());
  return made.extract(made.begin());
}

void ArenaAllocator::list(std::uint64_t at, Piece& piece) noexcept {
  piece.entry.value() = {piece.size, at};
  free_.insert(std::move(piece.entry));
  piece.entry = {};
}

void ArenaAllocator::unlist(std::uint64_t at, Piece& piece) noexcept {
  piece.entry = free_.extract({piece.size, at});
}

void ArenaAllocator::split(Chunk& chunk, std::uint64_t at, std::uint64_t bytes,
                           Pieces::node_type made) noexcept {
  Piece& front = chunk.pieces.find(at)->second;
  Piece& behind = made.mapped();
  behind.size = front.size - bytes;
  behind.freed_at = front.freed_at;
  behind.freed_on = front.freed_on;
  behind.mixed = front.mixed;
  front.size = bytes;
  made.key() = at + bytes;
  chunk.pieces.insert(std::move(made));
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

/// The free piece at `at`, which is not listed; `rest` is there when it is larger than `size`.
void ArenaAllocator::take(Chunk& chunk, std::uint64_t at, std::uint64_t size, std::uint64_t requested,
                          std::uint64_t owner, Pieces::node_type rest) noexcept {
  if (rest) {
    split(chunk, at, size, std::move(rest));
    list(at + size, chunk.pieces.find(at + size)->second);
  }
  Piece& piece = chunk.pieces.find(at)->second;
  piece.size = size;
  piece.requested = requested;
  piece.used = true;
  piece.freed_at = 0;
  piece.freed_on = 0;
  piece.mixed = false;
  piece.owner = owner;
  used_ += size;
}

bool ArenaAllocator::free(std::uint64_t address, std::uint64_t work, std::uint64_t stream,
                          std::vector<Range>& unmap) {
  const auto chunk = chunk_of(address);
  if (chunk == chunks_.end()) return false;
  const auto piece = chunk->second.pieces.find(address);
  if (piece == chunk->second.pieces.end() || !piece->second.used) return false;
  unmap.reserve(unmap.size() + 1);
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

/// Joins the free piece at `at`, which is not listed, with free neighbours, and lists it.
void ArenaAllocator::merge(Chunk& chunk, std::uint64_t at) noexcept {
  const auto join = [&](Piece& into, const Piece& from) {
    into.mixed = into.mixed || from.mixed || (dirty(from) && dirty(into) && from.freed_on != into.freed_on);
    if (dirty(from)) into.freed_on = from.freed_on;
    into.freed_at = std::max(into.freed_at, from.freed_at);
    into.size += from.size;
  };
  auto piece = chunk.pieces.find(at);
  if (const auto next = std::next(piece); next != chunk.pieces.end() && !next->second.used) {
    unlist(next->first, next->second);
    join(piece->second, next->second);
    chunk.pieces.erase(next);
  }
  if (piece != chunk.pieces.begin()) {
    const auto before = std::prev(piece);
    if (!before->second.used) {
      unlist(before->first, before->second);
      join(before->second, piece->second);
      chunk.pieces.erase(piece);
      piece = before;
    }
  }
  list(piece->first, piece->second);
}

void ArenaAllocator::drop_chunk(Chunks::iterator chunk, std::vector<Range>& unmap) noexcept {
  unmap.push_back({chunk->first, chunk->second.size});
  free_.erase({chunk->second.size, chunk->first});
  mapped_ -= chunk->second.size;
  idle_ -= chunk->second.size;
  chunks_.erase(chunk);
}

std::vector<ArenaAllocator::Range> ArenaAllocator::trim() {
  const auto is_idle = [](const Chunk& chunk) {
    return chunk.pieces.size() == 1 && !chunk.pieces.begin()->second.used;
  };
  std::vector<Range> unmap;
  unmap.reserve(static_cast<std::size_t>(
      std::ranges::count_if(chunks_, [&](const auto& entry) { return is_idle(entry.second); })));
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    const auto chunk = at++;
    if (is_idle(chunk->second)) drop_chunk(chunk, unmap);
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
