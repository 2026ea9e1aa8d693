"""The decision: grant, queue or refuse one request against one state of the pool.

Where a share goes when there is room the placement policy says (`scheduler/placement`, by way of `scheduler/fleet.py`). When
nothing fits, but would if memory of parked sessions left its device, the request waits and names the sessions that are to leave
(`scheduler/evict.py`). A parked session that is resumed has ways of its own (`scheduler/resume.py`).

Several shares go to one node. They go to several (`scheduler/gang.py`) only when no single one has room, not even after
parked memory has left, and the request allows it: it says so, or leaves it to the pool and no node could ever serve it alone.

What no device could ever serve is refused, unless a provider can bring one that does (`scheduler/promised.py`). What the user's
quota does not allow waits for that alone, whether there is room or not.

Of the node pools that a request names the first that has room is taken, then the first where room can be made; a gang lies
in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from gpupool.scheduler import explain
from gpupool.scheduler.candidates import Candidates
from gpupool.scheduler.eligible import admits, count_excluded
from gpupool.scheduler.fit import above_own_quota, above_quota, rooms, wait_for_eviction, within_quota
from gpupool.scheduler.fleet import NO_ROOM, Fleet
from gpupool.scheduler.gang import decide_gang, may_span, of_one_kind, spread, spread_room
from gpupool.scheduler.helps import advised
from gpupool.scheduler.model import Decision, DeviceView, Outcome, Request
from gpupool.scheduler.placement.cluster import Integers
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.ports import with_ports
from gpupool.scheduler.promised import least_milli, providers_for
from gpupool.scheduler.resume import decide_resume
from gpupool.sentences import NOTHING, clauses
from gpupool.shares import MAXIMUM_DEVICES, Share

_NO_ROOM: Final = Decision(Outcome.QUEUE, "full", NOTHING)


def decide(
    pool: PoolView, request: Request, *, helps: bool = True, words: bool = True, told: bool = True
) -> Decision:
    """Grants, queues or refuses ``request``.

    REFUSE means that waiting cannot help (too large for every device, above the user's quota by
    itself, smaller than what the resumed session keeps); QUEUE that it can.

    Args:
        pool: the pool at one moment.
        request: what is decided about.
        helps: whether to look for what would help, which takes several more decisions.
        words: whether somebody reads why there is no room. False: a what-if of which only that counts.
        told: whether anybody is told what was decided and why. False: words of a grant, and of there being no room, are left out.

    Raises:
        ValueError: the request is malformed (not exactly one of milli and mib, count out of 1..8).
    """
    share = Share(milli=request.milli, mib=request.mib)
    if not 1 <= request.count <= MAXIMUM_DEVICES:
        raise ValueError(f"count {request.count} is not within 1..{MAXIMUM_DEVICES}")
    if request.parts:
        decision = decide_gang(pool, request, share)
    elif request.parked is not None:
        decision = decide_resume(pool, request, request.parked, share)
    elif not pool.devices:
        decision = _from_nothing(pool, request, share)
    else:
        decision = _decide_new(pool, request, share, words=words, told=told)
    return advise(pool, request, decision) if helps else decision


def _from_nothing(pool: PoolView, request: Request, share: Share) -> Decision:
    """What a pool without a device says."""
    if not pool.promised:
        return Decision(Outcome.QUEUE, "no-node", explain.no_devices())
    if (waits := _waits_for_a_node(pool, request, share)) is not None:
        return waits
    said = explain.nobody_brings(share, request.count, pool.promised)
    return Decision(Outcome.REFUSE, "bad-share", said)


def _waits_for_a_node(pool: PoolView, request: Request, share: Share) -> Decision | None:
    """None: no provider can bring one that serves it."""
    providers = providers_for(pool.promised, request)
    if not providers:
        return None
    above = above_quota(pool, request.user, least_milli(pool.promised, request), request.count)
    if above is not None:
        return above
    return Decision(Outcome.QUEUE, "no-node", explain.to_come(share, request.count, providers))


def is_served(pool: PoolView, request: Request) -> bool:
    """Whether devices that serve could take a new session's shares if nobody had anything on them."""
    if not pool.devices:
        return False
    share, fleet = Share(milli=request.milli, mib=request.mib), pool.fleet
    candidates = fleet.candidates(request, share)
    one_node, _ = candidates.rows_with(request.count)
    if one_node and ((candidates.devices & fleet.healthy).sum(axis=1) >= request.count).any():
        return True
    kinds = of_one_kind(fleet, request, share) if may_span(request, one_node) else []
    return any((kind.devices & fleet.healthy).sum() >= request.count for kind in kinds)


def advise(pool: PoolView, request: Request, decision: Decision) -> Decision:
    """A decision that was made in this view without helps, with them: as if it had been made with them at once."""
    if decision.outcome is Outcome.GRANT:
        return decision
    return advised(pool, request, decision, lambda view, other: decide(view, other, helps=False, words=False))


def _decide_new(pool: PoolView, request: Request, share: Share, *, words: bool, told: bool) -> Decision:
    fleet = pool.fleet
    candidates = fleet.candidates(request, share)
    one_node, _ = candidates.rows_with(request.count)
    span = len(fleet.nodes) > 1 and may_span(request, one_node)
    kinds = of_one_kind(fleet, request, share) if span else []
    if not one_node and not kinds:
        return _never(pool, request, share, span=span)
    above = above_own_quota(pool, request, share, candidates, kinds)
    if above is not None:
        return above
    wanted = [fleet.candidates(request, share, name) for name in request.pools] or [candidates]
    found = next(_ways(pool, request, share, wanted, span=span, told=told), None)
    if found is not None:
        return found
    if not words:
        return _NO_ROOM
    if pool.without_port:
        anywhere = next(
            _ways(pool.with_ports_everywhere(), request, share, wanted, span=span, told=False), None
        )
        if anywhere is not None:
            return _wait_for_port(pool, request, share, anywhere)
    return _wait_for_room(pool, request, share, candidates, kinds, span=span, told=told)


def _ways(
    pool: PoolView, request: Request, share: Share, wanted: Sequence[Candidates], *, span: bool, told: bool
) -> Iterator[Decision]:
    """What can be done, the best first. ``wanted``: by node pool, the most wanted first."""
    wanted = [with_ports(pool, candidates) for candidates in wanted]
    for candidates in wanted:
        shares = pool.fleet.place(candidates, share, request.count)
        if shares is not None:
            yield within_quota(pool, request, shares, told=told)
    for candidates in wanted:
        room = min(
            rooms(pool, candidates, share, request.count),
            key=lambda room: (room[0].mib, room[1][0].device_id),
            default=None,
        )
        if room is not None:
            yield wait_for_eviction(pool, request, room)
    if not span:
        return
    of_pools = [
        [with_ports(pool, kind) for kind in of_one_kind(pool.fleet, request, share, name)]
        for name in request.pools or (None,)
    ]
    for kinds in of_pools:
        shares = spread(pool, kinds, share, request.count)
        if shares is not None:
            yield within_quota(pool, request, shares, told=told)
    for kinds in of_pools:
        room = spread_room(pool, kinds, share, request.count)
        if room is not None:
            yield wait_for_eviction(pool, request, room)


def _wait_for_port(pool: PoolView, request: Request, share: Share, anywhere: Decision) -> Decision:
    """Queues a request for which there is room, but on nodes whose ports are taken.

    No device is kept for it: who has a worker there already may use it. ``anywhere``: what would be decided with ports.
    """
    if anywhere.reason == "quota":
        return anywhere
    devices = anywhere.wants or tuple(placed.device_id for placed in anywhere.shares)
    nodes = {name.rpartition("/")[0] for name in devices}
    ports = {name: number for name, number in pool.without_port.items() if name in nodes}
    return Decision(Outcome.QUEUE, "full", explain.no_port(share, request.count, ports))


def _never(pool: PoolView, request: Request, share: Share, *, span: bool) -> Decision:
    """Refuses what no device could ever serve: because of what it is to be like, or because of its size."""
    if (waits := _waits_for_a_node(pool, request, share)) is not None:
        return waits
    excluded = count_excluded(pool.devices, request)
    if excluded.total() == len(pool.devices):
        return Decision(Outcome.REFUSE, "bad-share", explain.none_like_that(request, pool.devices, excluded))
    fleet = pool.fleet
    groups = [
        like
        for row in range(len(fleet.nodes))
        if (like := [d for d in fleet.on_row(row) if admits(d, request)])
    ]
    said = explain.never_fits(share, request.count, groups, span=span, only_one=request.nodes == "one")
    return Decision(Outcome.REFUSE, "bad-share", clauses(said, explain.excluded(excluded)))


def _wait_for_room(
    pool: PoolView,
    request: Request,
    share: Share,
    candidates: Candidates,
    kinds: Sequence[Candidates],
    *,
    span: bool,
    told: bool,
) -> Decision:
    """Queues a request that has no room anywhere, and names the devices to keep for it."""
    fleet = pool.fleet
    freest = max(
        _freest(fleet, candidates, kinds, request.count), key=lambda found: found[0], default=(NO_ROOM, [])
    )[1]
    if not freest:
        mask = np.logical_or.reduce([candidates.devices, *(kind.devices for kind in kinds)])
        return Decision(Outcome.QUEUE, "no-node", explain.unhealthy(fleet.among(mask)))
    wants = tuple(device.id for device in freest)
    if not told:
        return Decision(Outcome.QUEUE, "full", NOTHING, wants=wants)
    said = explain.full(share, request.count, freest, pool, span=span, advise=False)
    return Decision(Outcome.QUEUE, "full", said, wants=wants)


def _freest(
    fleet: Fleet, candidates: Candidates, kinds: Sequence[Candidates], count: int
) -> Iterator[tuple[int, list[DeviceView]]]:
    """Healthy devices with the most left, enough of them: of one node, and of each kind; with what the fullest has left."""
    one_node = fleet.left if candidates.everywhere else np.where(candidates.devices, fleet.left, NO_ROOM)
    width = one_node.shape[1]
    if count == 1:
        row, column = divmod(int(one_node.argmax()), width)
        if one_node[row, column] > NO_ROOM:
            yield int(one_node[row, column]), [fleet.at(row, column)]
    elif count <= width:
        # Of each node that of its devices of which `count` have as much.
        each = np.partition(one_node, width - count, axis=1)[:, width - count]
        row = int(each.argmax())
        if each[row] > NO_ROOM:
            columns = _largest(one_node[row], count)
            yield int(each[row]), [fleet.at(row, column) for column in columns]
    for kind in kinds:
        of_kind = np.where(kind.devices, fleet.left, NO_ROOM).ravel()
        chosen = _largest(of_kind, count)
        if of_kind[chosen[-1]] > NO_ROOM:
            yield int(of_kind[chosen[-1]]), [fleet.at(place // width, place % width) for place in chosen]


def _largest(values: Integers, count: int) -> list[int]:
    """Indices of the largest, the first of equals first."""
    return list(np.argsort(-values, kind="stable")[:count].tolist())
