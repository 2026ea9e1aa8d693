"""Shares of one process on several nodes: where they go, and where a gang that is parked goes on.

On as few nodes as possible, because what crosses nodes is slow; among those the tightest devices. All are of one kind,
so that a program finds equals, and never a software GPU beside a real one.

A gang goes on as a whole: all of its parts find room in one decision, or it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gpupool.scheduler import explain
from gpupool.scheduler.evict import Eviction
from gpupool.scheduler.fit import Room, best_fit, by_node, cheapest_room, large_enough, place_on
from gpupool.scheduler.model import Ask, Decision, DeviceView, Outcome, Parked, PlacedShare, PoolView
from gpupool.scheduler.resume import decide_resume
from gpupool.shares import Share

#: A number that is to be small, and what was found.
Found = tuple[tuple[int, ...], Room]
#: The best place for so many shares on one node's devices; None: there is none.
PlaceOnNode = Callable[[Sequence[DeviceView], int], Found | None]


def may_span(ask: Ask, one_node: bool) -> bool:
    """Whether the devices may lie on several nodes; `one_node`: some node could ever serve the ask alone."""
    if ask.count == 1 or ask.nodes == "one":
        return False
    return ask.nodes == "any" or not one_node


def of_one_kind(devices: Sequence[DeviceView], share: Share, count: int) -> list[list[DeviceView]]:
    """The devices of each kind of which there are enough, over all nodes."""
    kinds: dict[str, list[DeviceView]] = {}
    for device in large_enough(sorted(devices, key=lambda d: d.id), share):
        kinds.setdefault(device.kind, []).append(device)
    return [group for group in kinds.values() if len(group) >= count]


def spread(
    pool: PoolView, kinds: Sequence[Sequence[DeviceView]], share: Share, count: int
) -> tuple[PlacedShare, ...] | None:
    """The best fit on several nodes."""

    def place(group: Sequence[DeviceView], number: int) -> Found | None:
        found = best_fit(pool, group, share, number)
        return None if found is None else (found[0], (Eviction(), found[1]))

    best = _best(kinds, count, place)
    return None if best is None else best[1]


def spread_room(
    pool: PoolView, kinds: Sequence[Sequence[DeviceView]], share: Share, count: int
) -> Room | None:
    """Devices on several nodes that fit when memory of parked sessions has left, with the fewest bytes."""

    def place(group: Sequence[DeviceView], number: int) -> Found | None:
        found = cheapest_room(pool, group, share, number)
        return None if found is None else ((found[0].mib,), found)

    return _best(kinds, count, place)


def _best(kinds: Sequence[Sequence[DeviceView]], count: int, place: PlaceOnNode) -> Room | None:
    """Over all kinds: the fewest nodes, then the least of what `place` counts."""
    best: tuple[tuple[int, ...], Room] | None = None
    for devices in kinds:
        found = _over_nodes(by_node(devices), count, place)
        if found is None:
            continue
        rank = (len(found), *(sum(numbers) for numbers in zip(*(row[0] for row in found), strict=True)))
        if best is None or rank < best[0]:
            rows = sorted((row[1] for row in found), key=lambda room: room[1][0].device_id)
            shares = tuple(placed for room in rows for placed in room[1])
            leaving = tuple(held for room in rows for held in room[0].leaving)
            victims = tuple(held for room in rows for held in room[0].victims)
            best = (rank, (Eviction(victims, leaving), shares))
    return None if best is None else best[1]


def _over_nodes(nodes: Sequence[Sequence[DeviceView]], count: int, place: PlaceOnNode) -> list[Found] | None:
    """Node by node, each time as many shares as one node takes: so there are as few nodes as possible."""
    left = list(nodes)
    found: list[Found] = []
    rest = count
    while rest:
        most = min(rest, max((len(group) for group in left), default=0))
        options = (_options(left, number, place) for number in range(most, 0, -1))
        best = next((rows for rows in options if rows), None)
        if best is None:
            return None
        row, index = min(best, key=lambda option: (option[0][0], option[1]))
        found.append(row)
        rest -= len(row[1][1])
        del left[index]
    return found


def _options(
    nodes: Sequence[Sequence[DeviceView]], number: int, place: PlaceOnNode
) -> list[tuple[Found, int]]:
    return [
        (found, index)
        for index, group in enumerate(nodes)
        if len(group) >= number and (found := place(group, number)) is not None
    ]


def decide_gang(pool: PoolView, ask: Ask, share: Share) -> Decision:
    """Grants the parts of a parked gang where each goes on, all of them, or queues until all have room."""
    devices = [name for part in ask.parts for name in part.devices]
    if ask.count != len(devices):
        return Decision(Outcome.REFUSE, "bad-share", explain.pinned_count(ask.count, devices))
    refusal = _above_own_quota(pool, ask, share, devices)
    if refusal is not None:
        return refusal
    shares: list[PlacedShare] = []
    wants: list[str] = []
    waiting: list[Decision] = []
    for part in _apart(ask.parts):
        part = replace(part, avoid=part.avoid | {share.device_id.rpartition("/")[0] for share in shares})
        decision = decide_resume(pool, replace(ask, count=len(part.devices), parts=()), part, share)
        if decision.outcome is Outcome.REFUSE:
            return decision
        if decision.outcome is Outcome.QUEUE:
            waiting.append(decision)
            wants += decision.wants or part.devices
            continue
        shares += decision.shares
        wants += [placed.device_id for placed in decision.shares]
        pool = pool.taking(decision.shares, ask.user)
    if not waiting:
        return Decision(Outcome.GRANT, "", explain.granted(shares), tuple(shares))
    hopeless = [decision for decision in waiting if not decision.evict]
    if hopeless:
        # Nobody's memory is moved for one part while another has no room at all.
        keep = tuple(wants) if hopeless[0].reason == "full" else ()
        return replace(hopeless[0], wants=keep)
    evict = tuple(dict.fromkeys(name for decision in waiting for name in decision.evict))
    return replace(waiting[0], wants=tuple(wants), evict=evict)


def _apart(parts: Sequence[Parked]) -> Iterator[Parked]:
    """Each part, told to keep off the nodes where the others are: one worker of a process on a node."""
    for part in parts:
        yield replace(part, avoid=part.avoid | {other.node for other in parts if other is not part})


def _above_own_quota(pool: PoolView, ask: Ask, share: Share, devices: Sequence[str]) -> Decision | None:
    """A refusal when the whole gang is above its user's quota; its parts are looked at one by one later."""
    quota = pool.quota_of(ask.user)
    if quota.shares is not None and ask.count > quota.shares:
        text = explain.shares_quota_never(ask.user, ask.count, quota.shares)
        return Decision(Outcome.REFUSE, "quota", text)
    placed = [place_on(device, share) for device in pool.devices if device.id in devices]
    milli = sum(one.milli for one in placed if one is not None)
    if quota.milli is None or milli <= quota.milli:
        return None
    return Decision(Outcome.REFUSE, "quota", explain.quota_never(ask.user, milli, quota.milli))
