#include "enforcer/turn_book.h"

#include <algorithm>

namespace gpupool::enforcer {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr std::uint64_t whole = 1000;  // milli-GPU of a device

/// Virtual times grow without end and may start anywhere: only their difference means something.
bool before(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(a - b) < 0;
}

std::uint64_t later(std::uint64_t a, std::uint64_t b) {
  return before(a, b) ? b : a;
}

}  // namespace

Place* TurnBook::place(std::size_t slot) const {
  return slot < most_sessions ? &data_.places[slot] : nullptr;
}

std::size_t TurnBook::used() const {
  return std::min<std::size_t>(data_.used.load(relaxed), most_sessions);
}

std::uint32_t TurnBook::milli(std::size_t slot) const {
  return std::clamp<std::uint32_t>(data_.places[slot].milli.load(relaxed), 1, whole);
}

std::optional<std::size_t> TurnBook::holder() const {
  const auto number = static_cast<std::uint32_t>(data_.turn.load(std::memory_order_seq_cst));
  if (number == 0 || number > most_sessions) return std::nullopt;
  return number - 1;
}

bool TurnBook::has(std::size_t slot) const {
  return holder() == slot;
}

void TurnBook::drained(std::size_t slot) {
  Place* const place = this->place(slot);
  if (place != nullptr && place->overran.load(relaxed) != 0) place->overran.store(0, relaxed);
}

std::uint64_t TurnBook::turn_ns(std::size_t slot) const {
  return std::clamp(lengths_.round * milli(slot) / whole, lengths_.shortest, lengths_.longest);
}

std::optional<std::size_t> TurnBook::first_waiting() const {
  std::optional<std::size_t> first;
  for (std::size_t slot = 0; slot < used(); ++slot) {
    const Place& place = data_.places[slot];
    if (place.wants.load(relaxed) == 0) continue;
    if (!first || before(place.virtual_ns.load(relaxed), data_.places[*first].virtual_ns.load(relaxed)))
      first = slot;
  }
  return first;
}

/// The least virtual time of those that have or want the device; the last one known when there are none.
std::uint64_t TurnBook::present() const {
  const auto first = first_waiting();
  const auto has = holder();
  if (!first && !has) return data_.present_ns.load(relaxed);
  const std::uint64_t a = data_.places[first ? *first : *has].virtual_ns.load(relaxed);
  const std::uint64_t b = data_.places[has ? *has : *first].virtual_ns.load(relaxed);
  return before(a, b) ? a : b;
}

/// Nobody saves up time by being away: a credit of one turn is kept, for who is away between two kernels
/// only.
void TurnBook::catch_up(std::size_t slot, std::uint64_t present_ns) {
  std::atomic<std::uint64_t>& own = data_.places[slot].virtual_ns;
  own.store(later(own.load(relaxed), present_ns - turn_ns(slot) * whole / milli(slot)), relaxed);
}

void TurnBook::count_waiting() {
  std::uint32_t count = 0;
  for (std::size_t slot = 0; slot < used(); ++slot) {
    if (data_.places[slot].wants.load(relaxed) != 0) ++count;
  }
  data_.waiting.store(count, std::memory_order_seq_cst);
}

void TurnBook::join(std::size_t slot, std::uint32_t milli) {
  Place* const place = this->place(slot);
  if (place == nullptr) return;
  place->wants.store(0, relaxed);
  place->overran.store(0, relaxed);
  resize(slot, milli);
  place->virtual_ns.store(present(), relaxed);
  data_.used.store(static_cast<std::uint32_t>(std::max(used(), slot + 1)), relaxed);
  count_waiting();
  if (has(slot)) data_.turn.store(0, std::memory_order_seq_cst);  // of who was here before
}

void TurnBook::leave(std::size_t slot) {
  Place* const place = this->place(slot);
  if (place == nullptr) return;
  place->wants.store(0, relaxed);
  place->milli.store(0, relaxed);
  if (has(slot)) data_.turn.store(0, std::memory_order_seq_cst);
  std::size_t end = used();
  while (end > 0 && data_.places[end - 1].milli.load(relaxed) == 0) --end;
  data_.used.store(static_cast<std::uint32_t>(end), relaxed);
  count_waiting();
}

void TurnBook::resize(std::size_t slot, std::uint32_t milli) {
  if (Place* const place = this->place(slot)) place->milli.store(std::clamp(milli, 1U, 1000U), relaxed);
}

void TurnBook::want(std::size_t slot, std::uint64_t now_ns) {
  Place* const place = this->place(slot);
  if (place == nullptr || place->wants.load(relaxed) != 0) return;
  if (!first_waiting()) data_.since_ns.store(now_ns, relaxed);  // what it had while nobody waited is past
  catch_up(slot, present());
  place->wants.store(1, relaxed);
  count_waiting();
}

void TurnBook::withdraw(std::size_t slot) {
  if (Place* const place = this->place(slot)) place->wants.store(0, relaxed);
  count_waiting();
}

void TurnBook::give(std::size_t slot, std::uint64_t now_ns) {
  Place& place = data_.places[slot];
  place.wants.store(0, relaxed);
  place.granted.fetch_add(1, relaxed);
  data_.since_ns.store(now_ns, relaxed);
  const std::uint64_t count = (data_.turn.load(relaxed) >> 32U) + 1;
  data_.turn.store(count << 32U | (slot + 1), std::memory_order_seq_cst);
  count_waiting();
  data_.present_ns.store(present(), relaxed);
}

std::optional<std::size_t> TurnBook::pass(std::uint64_t now_ns, const Alive& alive) {
  const std::uint64_t turn = data_.turn.load(std::memory_order_seq_cst);
  std::optional<std::size_t> overrunning;
  if (static_cast<std::uint32_t>(turn) != 0) {
    const auto has = holder();
    const std::uint64_t since = data_.since_ns.load(relaxed);
    // A time that lies ahead is none of this boot's.
    const bool beside = has && data_.places[*has].overran.load(relaxed) != 0;
    const std::uint64_t limit = beside ? lengths_.patience_beside : lengths_.patience;
    const bool overdue = since > now_ns || now_ns - since > limit;
    if (has && !overdue && alive(*has)) return std::nullopt;
    if (has && overdue) overrunning = has;
  }
  while (const auto next = first_waiting()) {
    if (alive(*next)) {
      if (overrunning && *overrunning != *next) data_.places[*overrunning].overran.store(1, relaxed);
      give(*next, now_ns);
      return next;
    }
    leave(*next);
  }
  const auto has = holder();
  if (static_cast<std::uint32_t>(turn) != 0 && (!has || !alive(*has)))
    data_.turn.store(0, std::memory_order_seq_cst);
  count_waiting();
  return std::nullopt;
}

bool TurnBook::take(std::size_t slot, std::uint64_t now_ns) {
  if (place(slot) == nullptr || contended()) return false;
  std::uint64_t free = data_.turn.load(relaxed);
  if (static_cast<std::uint32_t>(free) != 0) return false;
  if (!data_.turn.compare_exchange_strong(free, ((free >> 32U) + 1) << 32U | (slot + 1))) return false;
  data_.since_ns.store(now_ns, relaxed);
  catch_up(slot, data_.present_ns.load(relaxed));
  return true;
}

bool TurnBook::give_up(std::size_t slot) {
  std::uint64_t turn = data_.turn.load(relaxed);
  if (static_cast<std::uint32_t>(turn) != slot + 1) return false;
  // It fails when another has taken the turn over just now.
  data_.turn.compare_exchange_strong(turn, turn >> 32U << 32U);
  return contended();
}

void TurnBook::charge(std::size_t slot, std::uint64_t device_ns) {
  Place* const place = this->place(slot);
  if (place == nullptr || device_ns == 0) return;
  // Beyond a day it is not a measurement.
  const std::uint64_t sane = std::min<std::uint64_t>(device_ns, 86'400'000'000'000);
  const std::uint64_t own = place->virtual_ns.load(relaxed) + sane * whole / milli(slot);
  place->virtual_ns.store(own, relaxed);
  if (!contended() && has(slot)) data_.present_ns.store(own, relaxed);
}

bool TurnBook::over(std::size_t slot, std::uint64_t under_way_ns) const {
  const auto first = contended() ? first_waiting() : std::nullopt;
  if (!first || place(slot) == nullptr) return false;
  const std::uint64_t own = data_.places[slot].virtual_ns.load(relaxed) + under_way_ns * whole / milli(slot);
  const std::uint64_t ahead = turn_ns(slot) * whole / milli(slot);
  return !before(own, data_.places[*first].virtual_ns.load(relaxed) + ahead);
}

bool TurnBook::behind(std::size_t slot) const {
  const auto first = contended() ? first_waiting() : std::nullopt;
  return first && place(slot) != nullptr &&
         before(data_.places[slot].virtual_ns.load(relaxed), data_.places[*first].virtual_ns.load(relaxed));
}

}  // namespace gpupool::enforcer
