"""Which leases must end so that a request fits: the least milli-GPU, and among equals who came last and matters least.

Pure: who may be taken back at all, and for whom, is asked of the caller (`Search.allowed`), and whether a request fits is
asked of the scheduler itself (`Search.fits`), so what is found here is what `decide` will grant afterwards. A session
whose lease ends keeps its memory: where that can leave the device, room is made by it; where it cannot, only the
compute of the lease becomes free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from gpupool.scheduler.eligible import admits
from gpupool.scheduler.model import Decision, DeviceView, Held, Outcome, PlacedShare, Request
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.sizes import place_on
from gpupool.shares import Share

#: Up to this many leases on a device the best choice is found; beyond, a good one.
_EXACT = 8
#: So many places are tried in full before a request is told that nobody can make room for it.
_TRIES = 24


@dataclass(frozen=True, slots=True)
class Candidate:
    """A lease that could end for another's request.

    Attributes:
        lease_ids: its parts; the first names it.
        shares: what it holds, of all parts.
        rank: the order among candidates that free as much: the smallest goes first.
        kept: (session's memory once it is parked, where it lies), one of each part that keeps any.
    """

    lease_ids: tuple[str, ...]
    shares: tuple[PlacedShare, ...]
    rank: tuple[float, ...] = ()
    kept: tuple[tuple[Held, tuple[PlacedShare, ...]], ...] = ()

    @property
    def id(self) -> str:
        return self.lease_ids[0]

    @property
    def milli(self) -> int:
        return sum(share.milli for share in self.shares)

    def frees(self, device_id: str) -> tuple[int, int]:
        """(milli, MiB) that a device gets back, memory that cannot leave it left out."""
        stuck = sum(
            share.mib
            for held, shares in self.kept
            if held.stays
            for share in shares
            if share.device_id == device_id
        )
        milli = sum(share.milli for share in self.shares if share.device_id == device_id)
        mib = sum(share.mib for share in self.shares if share.device_id == device_id)
        return milli, mib - stuck


@dataclass(frozen=True, slots=True)
class Holder:
    """A lease on one device, and what the device gets back by its end."""

    candidate: Candidate
    milli: int
    mib: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Leases that are to end, and what the scheduler says of the request then (granted, or when memory has left)."""

    victims: tuple[Candidate, ...]
    decision: Decision


@dataclass(frozen=True, slots=True)
class Search:
    """What the search is done with.

    Attributes:
        decide: the scheduler's word on the request in a pool.
        allowed: whether these leases together may be taken back for it.
    """

    request: Request
    decide: Callable[[PoolView], Decision]
    allowed: Callable[[Sequence[Candidate]], bool]


def after(view: PoolView, gone: Iterable[Candidate]) -> PoolView:
    """The pool when these leases have ended and their sessions are parked where they were."""
    leaving = list(gone)
    if not leaving:
        return view
    view = view.without({name for candidate in leaving for name in candidate.lease_ids})
    for candidate in leaving:
        for held, shares in candidate.kept:
            view = view.parking(shares, held)
    return view


def serves(decision: Decision) -> bool:
    """Whether a request has its place, now or as soon as memory of parked sessions has left."""
    return decision.outcome is Outcome.GRANT or bool(decision.evict)


def places(decision: Decision) -> tuple[str, ...]:
    """The devices that the request will be on."""
    return tuple(share.device_id for share in decision.shares) or decision.wants


def plan(view: PoolView, search: Search, candidates: Sequence[Candidate]) -> Plan | None:
    """The leases that have to end for a request that does not fit into `view`; None: no choice of them makes room."""
    for tried, victims in enumerate(_choices(view, search, candidates)):
        if tried == _TRIES:
            return None
        decision = search.decide(after(view, victims))
        if serves(decision):
            return without_spare(view, search, Plan(tuple(victims), decision))
    return None


def without_spare(view: PoolView, search: Search, found: Plan) -> Plan:
    """`found` without leases that need not end for it."""
    for victim in sorted(found.victims, key=lambda v: (-v.milli, v.id)):
        rest = tuple(other for other in found.victims if other.id != victim.id)
        decision = search.decide(after(view, rest))
        if serves(decision) and search.allowed(rest):
            found = Plan(rest, decision)
    return found


def freeing(candidates: Sequence[Candidate], milli: int) -> tuple[Candidate, ...]:
    """Leases that hold so many milli-GPU together, wherever: one if one is enough, else none in vain; empty: they do not."""
    ranked = sorted(candidates, key=lambda c: (c.rank, c.id))
    single = [candidate for candidate in ranked if candidate.milli >= milli]
    if single:
        return (min(single, key=lambda c: (c.milli, c.rank, c.id)),)
    taken: list[Candidate] = []
    while ranked and sum(c.milli for c in taken) < milli:
        taken.append(ranked.pop(0))
    spare = sum(c.milli for c in taken) - milli
    if spare < 0:
        return ()
    for candidate in sorted(taken, key=lambda c: (-c.milli, c.id)):
        if candidate.milli <= spare:
            spare -= candidate.milli
            taken.remove(candidate)
    return tuple(taken)


def _choices(
    view: PoolView, search: Search, candidates: Sequence[Candidate]
) -> Iterator[tuple[Candidate, ...]]:
    """Sets of leases that make room by the numbers, the cheapest first."""
    request = search.request
    share = Share(milli=request.milli, mib=request.mib)
    holders: dict[str, list[Holder]] = {}
    for candidate in sorted(candidates, key=lambda c: (c.rank, c.id)):
        for name in dict.fromkeys(held.device_id for held in candidate.shares):
            holders.setdefault(name, []).append(Holder(candidate, *candidate.frees(name)))
    open_to = [
        (device, placed)
        for device in view.devices
        if device.healthy
        and device.id not in view.reserved
        and admits(device, request)
        and (placed := place_on(device, share)) is not None
    ]
    found: list[tuple[Candidate, ...]] = []
    for group in _groups(open_to, request):
        chosen = _cheapest(group, request.count, holders, search)
        if chosen:
            found.append(chosen)
    yield from dict.fromkeys(sorted(found, key=_cost))


def _groups(
    open_to: Sequence[tuple[DeviceView, PlacedShare]], request: Request
) -> Iterator[list[tuple[DeviceView, PlacedShare]]]:
    """Devices of which the request needs `count`: each by itself, those of a node, those of the pool."""
    if request.count == 1 and not request.parts:
        yield from ([row] for row in open_to)
        return
    nodes: dict[str, list[tuple[DeviceView, PlacedShare]]] = {}
    for device, placed in open_to:
        nodes.setdefault(device.node, []).append((device, placed))
    if request.parked is not None:
        own = [row for row in open_to if row[0].id in request.parked.devices]
        yield own
    yield from nodes.values()
    if request.nodes != "one":
        for kind in sorted({device.kind for device, _ in open_to}):
            yield [row for row in open_to if row[0].kind == kind]


def _cheapest(
    group: Sequence[tuple[DeviceView, PlacedShare]],
    count: int,
    holders: Mapping[str, Sequence[Holder]],
    search: Search,
) -> tuple[Candidate, ...] | None:
    """Leases by whose end `count` devices of the group have room, chosen device by device."""
    if len(group) < count:
        return None
    rows = []
    for device, placed in group:
        alone = _least(device, placed, holders.get(device.id, ()), (), search)
        if alone is not None:
            rows.append((_cost(alone), device.id, alone, device, placed))
    rows.sort(key=lambda row: row[:2])
    chosen: tuple[Candidate, ...] = ()
    done = 0
    for _, _, alone, device, placed in rows:
        more = _least(device, placed, holders.get(device.id, ()), chosen, search) if chosen else alone
        if more is None:
            continue
        chosen += more
        done += 1
        if done == count:
            return chosen
    return None


def _least(
    device: DeviceView,
    placed: PlacedShare,
    holders: Sequence[Holder],
    chosen: Sequence[Candidate],
    search: Search,
) -> tuple[Candidate, ...] | None:
    """What must end on one device, besides what is `chosen` already; None: that is not enough or not allowed."""
    movable = sum(held.mib for held in device.held if held.movable or held.leaving)
    milli = placed.milli - device.free_milli
    mib = placed.mib - device.free_mib - movable
    gone = {candidate.id for candidate in chosen}
    rest = []
    for holder in holders:
        if holder.candidate.id in gone:
            milli -= holder.milli
            mib -= holder.mib
        else:
            rest.append(holder)
    if milli <= 0 and mib <= 0:
        return ()
    # Memory that stays can be more than a lease has, so all of them may free less than some.
    if sum(max(0, x.milli) for x in rest) < milli or sum(max(0, x.mib) for x in rest) < mib:
        return None
    if len(rest) > _EXACT:
        return _good(rest, milli, mib, chosen, search)
    for some in _cheapest_first(rest, milli, mib):
        if search.allowed((*chosen, *some)):
            return some
    return None


def _enough(some: Iterable[Holder], milli: int, mib: int) -> bool:
    """Whether a device gets back so much when these end."""
    for holder in some:
        milli -= holder.milli
        mib -= holder.mib
    return milli <= 0 and mib <= 0


def _cheapest_first(rest: Sequence[Holder], milli: int, mib: int) -> Iterator[tuple[Candidate, ...]]:
    """All choices of these leases that are enough, in the order of their cost.

    A choice costs more than each part of it. So larger ones are made of those that were looked at, and seldom at all.
    """
    made: set[tuple[int, ...]] = set()
    waiting: list[tuple[tuple[int, list[tuple[float, ...]], list[str]], tuple[int, ...]]] = []

    def add(places: tuple[int, ...]) -> None:
        if places not in made:
            made.add(places)
            heappush(waiting, (_cost([rest[place].candidate for place in places]), places))

    for places in _just_enough(rest, milli, mib):
        add(places)
    while waiting:
        _, places = heappop(waiting)
        if _enough((rest[place] for place in places), milli, mib):
            yield tuple(rest[place].candidate for place in places)
        for place in range(len(rest)):
            if place not in places:
                add(tuple(sorted((*places, place))))


def _just_enough(rest: Sequence[Holder], milli: int, mib: int) -> Iterator[tuple[int, ...]]:
    """Choices that are enough, by their places: all of which no lease can be left out, and few others."""
    # What those from a place on can free at most.
    ahead = [(0, 0)]
    for holder in reversed(rest):
        ahead.append((ahead[-1][0] + max(0, holder.milli), ahead[-1][1] + max(0, holder.mib)))
    ahead.reverse()
    begun: list[tuple[tuple[int, ...], int, int, int]] = [((), 0, milli, mib)]
    while begun:
        places, place, milli, mib = begun.pop()
        if milli <= 0 and mib <= 0:
            yield places
        elif ahead[place][0] >= milli and ahead[place][1] >= mib and place < len(rest):
            holder = rest[place]
            begun.append((places, place + 1, milli, mib))
            begun.append(((*places, place), place + 1, milli - holder.milli, mib - holder.mib))


def _good(
    rest: Sequence[Holder], milli: int, mib: int, chosen: Sequence[Candidate], search: Search
) -> tuple[Candidate, ...] | None:
    """One lease if one is enough; else from the first in rank on, none of them in vain."""
    single = [
        x.candidate for x in rest if _enough([x], milli, mib) and search.allowed((*chosen, x.candidate))
    ]
    if single:
        return (min(single, key=lambda one: (one.milli, one.rank, one.id)),)
    taken: list[Holder] = []
    for holder in rest:
        if _enough(taken, milli, mib):
            break
        if search.allowed((*chosen, *(x.candidate for x in taken), holder.candidate)):
            taken.append(holder)
    if not _enough(taken, milli, mib):
        return None
    for holder in sorted(taken, key=lambda x: (-x.candidate.milli, x.candidate.id)):
        fewer = [other for other in taken if other is not holder]
        if _enough(fewer, milli, mib):
            taken = fewer
    return tuple(x.candidate for x in taken)


def _cost(victims: Sequence[Candidate]) -> tuple[int, list[tuple[float, ...]], list[str]]:
    """What is compared: milli-GPU that end, then the ranks of those whose they are."""
    return (
        sum(victim.milli for victim in victims),
        sorted((victim.rank for victim in victims), reverse=True),
        sorted(victim.id for victim in victims),
    )
