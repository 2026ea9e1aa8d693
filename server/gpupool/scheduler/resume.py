"""Where a parked session goes on: the cheapest way in bytes that have to be copied.

In this order when the bytes are equal: on the devices where its memory is; on others of its node; in another node.

- Where it is, when it fits there: nothing is copied that must not be.
- Where it is, after memory of other parked sessions has left: what they keep counts.
- On other devices of its node. Memory that lies in the host or on disk comes back anyway, wherever it goes;
  memory that is still on the old device goes to the host first, and counts.
- In another node, by a new worker that fetches it from the present one. Each byte counts four times: it is read,
  sent, stored and written, and a network is slower than a device's bus.

Others are therefore asked to leave when they keep less than four times what would have to be sent. A session
whose memory lies on disk has no worker to fetch it from, and goes on in its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpupool.scheduler import explain
from gpupool.scheduler.candidates import Candidates
from gpupool.scheduler.eligible import admits, count_excluded, excluded_by
from gpupool.scheduler.evict import Eviction, make_room
from gpupool.scheduler.fit import Room, above_quota, rooms, wait_for_eviction, within_quota
from gpupool.scheduler.fleet import only
from gpupool.scheduler.model import Decision, DeviceView, Outcome, Parked, PlacedShare, Request
from gpupool.scheduler.placement.policy import Mask
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.sizes import fits, place_on
from gpupool.sentences import clauses
from gpupool.shares import Share

#: What a byte that is sent to another node counts.
SENDING_COST = 4

#: Cost in MiB, rank among equal costs, what to do.
Way = tuple[int, int, Decision]


def decide_resume(pool: PoolView, request: Request, parked: Parked, share: Share) -> Decision:
    """Grants on the devices where the session goes on, or queues until there is room."""
    if request.count != len(parked.devices):
        text = explain.pinned_count(request.count, parked.devices)
        return Decision(Outcome.REFUSE, "bad-share", text)
    own = [device for name in parked.devices if (device := pool.device(name)) is not None]
    if len(own) < len(parked.devices):
        missing = next(name for name in parked.devices if pool.device(name) is None)
        return Decision(Outcome.QUEUE, "no-node", explain.pinned_missing(missing))
    shares = []
    for index, device in enumerate(own):
        placed = place_on(device, share)
        if placed is None:
            text = explain.never_fits(share, 1, [[device]])
            return Decision(Outcome.REFUSE, "bad-share", text)
        if placed.mib < parked.kept_on(index):
            text = explain.below_kept(share, placed.mib, parked.kept_on(index), device)
            return Decision(Outcome.REFUSE, "bad-share", text)
        shares.append(placed)
    above = above_quota(pool, request.user, sum(placed.milli for placed in shares), len(shares))
    if above is not None:
        return above
    like = _like(pool, request, parked, share, own)
    ways = [
        *_where_it_is(pool, request, parked, own, tuple(shares)),
        *_in_its_node(pool, request, parked, share, like),
        *_in_another_node(pool, request, parked, share, like),
    ]
    if ways:
        return min(ways, key=lambda way: way[:2])[2]
    sick = [device for device in own if not device.healthy]
    if sick:
        return Decision(Outcome.QUEUE, "no-node", explain.unhealthy(sick))
    barred = next((device for device in own if not admits(device, request)), None)
    if barred is not None:
        excluded = count_excluded(pool.devices, request)
        if excluded.total() == len(pool.devices):
            return Decision(
                Outcome.REFUSE, "bad-share", explain.none_like_that(request, pool.devices, excluded)
            )
        return Decision(Outcome.QUEUE, "full", explain.pinned_barred(barred, excluded_by(barred, request)))
    if _needs_port(pool, parked):
        ports = {parked.node: pool.without_port[parked.node]}
        return Decision(Outcome.QUEUE, "full", explain.no_port(share, request.count, ports))
    full = next(
        d for d, placed in zip(own, shares, strict=True) if d.id in pool.reserved or not fits(d, placed)
    )
    text = explain.pinned_full(share, full, pool, parked)
    return Decision(Outcome.QUEUE, "full", text, wants=parked.devices)


def _needs_port(pool: PoolView, parked: Parked) -> bool:
    """Whether it lies on the disk of a node on which no worker finds a port."""
    return parked.place == "image" and parked.node in pool.without_port


def _where_it_is(
    pool: PoolView,
    request: Request,
    parked: Parked,
    own: Sequence[DeviceView],
    shares: tuple[PlacedShare, ...],
) -> Iterator[Way]:
    if any(device.id in pool.reserved or not admits(device, request) for device in own):
        return
    if _needs_port(pool, parked):
        return
    wanted = list(zip(own, shares, strict=True))
    if all(fits(device, placed) for device, placed in wanted):
        yield 0, 0, within_quota(pool, request, shares)
        return
    eviction = make_room(wanted, pool.host_room.get(own[0].node, 0))
    if eviction is not None:
        yield eviction.mib, 0, wait_for_eviction(pool, request, (eviction, shares))


def _in_its_node(
    pool: PoolView, request: Request, parked: Parked, share: Share, like: Candidates
) -> Iterator[Way]:
    if _needs_port(pool, parked):
        return
    row = only(pool.fleet, parked.node)
    found = _at_kept_place(pool, parked, share, like, row) or pool.fleet.place(
        like, share, request.count, row
    )
    if parked.place != "device":
        if found is not None:
            yield 0, 1, within_quota(pool, request, found)
            return
        for room in rooms(pool, like, share, request.count, row):
            yield room[0].mib, 1, wait_for_eviction(pool, request, room)
    elif not parked.stays and parked.mib <= pool.host_room.get(parked.node, 0):
        place = (Eviction(), found) if found else _beside_its_own(pool, request, parked, share, like)
        if place is not None:
            yield parked.mib + place[0].mib, 1, _change_device(pool, request, parked, place)


def _at_kept_place(
    pool: PoolView, parked: Parked, share: Share, like: Candidates, rows: Mask
) -> tuple[PlacedShare, ...] | None:
    """Where room was kept for it when it was moved away for another request, if that is on one of these nodes."""
    fleet = pool.fleet
    shares = []
    for name in parked.kept_place:
        device = pool.device(name)
        placed = None if device is None or name in pool.reserved else place_on(device, share)
        if device is None or placed is None or not fits(device, placed):
            return None
        row, column = fleet.where(name)
        if not rows[row] or not like.devices[row, column]:
            return None
        shares.append(placed)
    return tuple(shares) or None


def _beside_its_own(
    pool: PoolView, request: Request, parked: Parked, share: Share, like: Candidates
) -> Room | None:
    """Others' memory that leaves so that the session can change its device: both go to one host memory."""
    left = pool.host_room[parked.node] - parked.mib
    rest = pool.with_host_room({**pool.host_room, parked.node: left})
    return next(rooms(rest, like, share, request.count, only(pool.fleet, parked.node)), None)


def _change_device(pool: PoolView, request: Request, parked: Parked, room: Room) -> Decision:
    """Queues until the session's memory, and whatever is in its way, has left for the host."""
    eviction, shares = room
    allowed = within_quota(pool, request, shares)
    if allowed.outcome is not Outcome.GRANT:
        return allowed
    text = explain.changing_device(parked, shares)
    if eviction.sessions:
        others = explain.making_room(eviction.victims + eviction.leaving, shares)
        text = clauses(text, others)
    wants = tuple(placed.device_id for placed in shares)
    return Decision(Outcome.QUEUE, "full", text, wants=wants, evict=(parked.session_id, *eviction.sessions))


def _in_another_node(
    pool: PoolView, request: Request, parked: Parked, share: Share, like: Candidates
) -> Iterator[Way]:
    fleet = pool.fleet
    own = fleet.on_row(fleet.rows[parked.node])
    reachable = any(device.healthy or device.closed for device in own)
    if parked.bound or parked.place == "image" or not reachable:
        return
    cost = SENDING_COST * parked.mib
    others = like.rows
    for node in {parked.node, *parked.avoid, *pool.without_port}:
        if node in fleet.rows:
            others[fleet.rows[node]] = False
    found = _at_kept_place(pool, parked, share, like, others) or fleet.place(
        like, share, request.count, others
    )
    if found is not None:
        allowed = within_quota(pool, request, found)
        if allowed.outcome is Outcome.GRANT:
            allowed = replace(allowed, said=explain.moving(parked, found))
        yield cost, 2, allowed
        return
    for room in rooms(pool, like, share, request.count, others):
        yield cost + room[0].mib, 3, wait_for_eviction(pool, request, room)


def _like(
    pool: PoolView, request: Request, parked: Parked, share: Share, own: Sequence[DeviceView]
) -> Candidates:
    """Devices that memory of this session can live on: of one kind with its own, and large enough."""
    fleet = pool.fleet
    kinds = {device.kind for device in own}
    most = max((parked.kept_on(index) for index in range(len(own))), default=0)
    classes = (
        number
        for number, device in enumerate(fleet.classes)
        if kinds == {device.kind} and (placed := place_on(device, share)) is not None and placed.mib >= most
    )
    return fleet.candidates(request, share, like=frozenset(classes))
