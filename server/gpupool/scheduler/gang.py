"""Shares of one process on several nodes: where they go, and where a gang that is parked goes on.

On as few nodes as possible, because what crosses nodes is slow; among those the tightest devices. All are of one kind,
so that a program finds equals, and never a software GPU beside a real one.

A gang goes on as a whole: all of its parts find room in one decision, or it waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpupool.scheduler import explain
from gpupool.scheduler.candidates import Candidates
from gpupool.scheduler.evict import Eviction
from gpupool.scheduler.fit import Room, above_quota, cheapest_room, with_compute
from gpupool.scheduler.fleet import Fleet
from gpupool.scheduler.model import Decision, DeviceView, Outcome, Parked, PlacedShare, Request
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.resume import decide_resume
from gpupool.scheduler.sizes import place_on
from gpupool.shares import Share


def may_span(request: Request, one_node: bool) -> bool:
    """Whether the devices may lie on several nodes; `one_node`: some node could ever serve the request alone."""
    if request.count == 1 or request.nodes == "one":
        return False
    return request.nodes == "any" or not one_node


def of_one_kind(
    fleet: Fleet, request: Request, share: Share, node_pool: str | None = None
) -> list[Candidates]:
    """The candidates of each kind of which there are enough, over all nodes of the node pool."""
    kinds: dict[str, set[int]] = {}
    for number, device in enumerate(fleet.classes):
        kinds.setdefault(device.kind, set()).add(number)
    every = (fleet.candidates(request, share, node_pool, frozenset(kinds[name])) for name in sorted(kinds))
    return [candidates for candidates in every if candidates.per_row.sum() >= request.count]


def spread(
    pool: PoolView, kinds: Sequence[Candidates], share: Share, count: int
) -> tuple[PlacedShare, ...] | None:
    """Devices on several nodes: of the kinds that fit, on the fewest nodes; among these where the least room remains."""
    found = [parts for kind in kinds if (parts := _node_by_node(pool, kind, share, count))]
    if not found:
        return None

    def rank(parts: list[tuple[PlacedShare, ...]]) -> tuple[int, int, int]:
        left = [(pool.device(placed.device_id), placed) for part in parts for placed in part]
        milli = sum(device.free_milli - placed.milli for device, placed in left if device)
        mib = sum(device.free_mib - placed.mib for device, placed in left if device)
        return len(parts), milli, mib

    return tuple(placed for part in min(found, key=rank) for placed in part)


def _node_by_node(
    pool: PoolView, kind: Candidates, share: Share, count: int
) -> list[tuple[PlacedShare, ...]] | None:
    """Each time as many shares as one node takes: so there are as few nodes as possible."""
    fleet = pool.fleet
    left = kind.rows
    parts: list[tuple[PlacedShare, ...]] = []
    rest = most = count
    while rest:
        placed = None
        for number in range(min(rest, most), 0, -1):
            placed = fleet.place(kind, share, number, left)
            if placed is not None:
                break
        if placed is None:
            return None
        parts.append(placed)
        most = len(placed)
        rest -= most
        left[fleet.rows[node_of(placed)]] = False
    return sorted(parts, key=lambda part: part[0].device_id)


def node_of(shares: Sequence[PlacedShare]) -> str:
    """The node of shares that lie on one node; a device's id is ``<node>/<ordinal>``."""
    return shares[0].device_id.rpartition("/")[0]


def spread_room(pool: PoolView, kinds: Sequence[Candidates], share: Share, count: int) -> Room | None:
    """Devices on several nodes that fit when memory of parked sessions has left, with the fewest bytes."""
    fleet = pool.fleet
    best: tuple[tuple[int, int], Room] | None = None
    for kind in kinds:
        possible = with_compute(fleet, kind, share)
        if possible.sum() < count or not fleet.parked[possible.any(axis=1)].any():
            continue
        nodes = [fleet.on_row(row, possible) for row in np.flatnonzero(possible.any(axis=1)).tolist()]
        found = _rooms_over_nodes(pool, nodes, share, count)
        if found is None:
            continue
        rank = (len(found), sum(room[0].mib for room in found))
        if best is None or rank < best[0]:
            found.sort(key=lambda room: room[1][0].device_id)
            shares = tuple(placed for room in found for placed in room[1])
            leaving = tuple(held for room in found for held in room[0].leaving)
            victims = tuple(held for room in found for held in room[0].victims)
            best = (rank, (Eviction(victims, leaving), shares))
    return None if best is None else best[1]


def _rooms_over_nodes(
    pool: PoolView, nodes: Sequence[Sequence[DeviceView]], share: Share, count: int
) -> list[Room] | None:
    """Node by node, each time as many shares as one node takes, with the fewest bytes to move."""
    left = list(nodes)
    found: list[Room] = []
    rest = count
    while rest:
        best: tuple[int, int, Room] | None = None
        for number in range(min(rest, max((len(group) for group in left), default=0)), 0, -1):
            options = (
                (room[0].mib, index, room)
                for index, group in enumerate(left)
                if len(group) >= number and (room := cheapest_room(pool, group, share, number)) is not None
            )
            best = min(options, key=lambda option: option[:2], default=None)
            if best is not None:
                break
        if best is None:
            return None
        found.append(best[2])
        rest -= len(best[2][1])
        del left[best[1]]
    return found


def decide_gang(pool: PoolView, request: Request, share: Share) -> Decision:
    """Grants the parts of a parked gang where each goes on, all of them, or queues until all have room."""
    devices = [name for part in request.parts for name in part.devices]
    if request.count != len(devices):
        return Decision(Outcome.REFUSE, "bad-share", explain.pinned_count(request.count, devices))
    above = _above_own_quota(pool, request, share, devices)
    if above is not None:
        return above
    shares: list[PlacedShare] = []
    wants: list[str] = []
    waiting: list[Decision] = []
    for part in _apart(request.parts):
        part = replace(part, avoid=part.avoid | {share.device_id.rpartition("/")[0] for share in shares})
        decision = decide_resume(pool, replace(request, count=len(part.devices), parts=()), part, share)
        if decision.outcome is Outcome.REFUSE:
            return decision
        if decision.outcome is Outcome.QUEUE:
            waiting.append(decision)
            wants += decision.wants or part.devices
            continue
        shares += decision.shares
        wants += [placed.device_id for placed in decision.shares]
        pool = pool.taking(decision.shares, request.user)
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


def _above_own_quota(
    pool: PoolView, request: Request, share: Share, devices: Sequence[str]
) -> Decision | None:
    """What keeps the whole gang from its user, see `fit.above_quota`; its parts are looked at one by one later."""
    placed = [place_on(device, share) for name in devices if (device := pool.device(name)) is not None]
    milli = sum(one.milli for one in placed if one is not None)
    return above_quota(pool, request.user, milli, request.count)
