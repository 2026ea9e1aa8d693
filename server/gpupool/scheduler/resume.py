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
from gpupool.scheduler.evict import Eviction, make_room
from gpupool.scheduler.fit import (
    Room,
    above_own_quota,
    best_fit,
    by_node,
    cheapest_room,
    fits,
    place_on,
    wait_for_eviction,
    within_quota,
)
from gpupool.scheduler.model import Ask, Decision, DeviceView, Outcome, Parked, PlacedShare, PoolView
from gpupool.shares import Share

#: What a byte that is sent to another node counts.
SENDING_COST = 4

#: Cost in MiB, rank among equal costs, what to do.
Way = tuple[int, int, Decision]


def decide_resume(pool: PoolView, ask: Ask, parked: Parked, share: Share) -> Decision:
    """Grants on the devices where the session goes on, or queues until there is room."""
    if ask.count != len(parked.devices):
        text = explain.pinned_count(ask.count, parked.devices)
        return Decision(Outcome.REFUSE, "bad-share", text)
    known = {device.id: device for device in pool.devices}
    own = [known[name] for name in parked.devices if name in known]
    if len(own) < len(parked.devices):
        missing = next(name for name in parked.devices if name not in known)
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
    refusal = above_own_quota(pool, ask, share, [own])
    if refusal is not None:
        return refusal
    ways = [
        *_where_it_is(pool, ask, own, tuple(shares)),
        *_in_its_node(pool, ask, parked, share, own),
        *_in_another_node(pool, ask, parked, share, own),
    ]
    if ways:
        return min(ways, key=lambda way: way[:2])[2]
    sick = [device for device in own if not device.healthy]
    if sick:
        return Decision(Outcome.QUEUE, "no-node", explain.unhealthy(sick))
    full = next(
        d for d, placed in zip(own, shares, strict=True) if d.id in pool.reserved or not fits(d, placed)
    )
    text = explain.pinned_full(share, full, pool, parked)
    return Decision(Outcome.QUEUE, "full", text, wants=parked.devices)


def _where_it_is(
    pool: PoolView, ask: Ask, own: Sequence[DeviceView], shares: tuple[PlacedShare, ...]
) -> Iterator[Way]:
    if any(device.id in pool.reserved for device in own):
        return
    wanted = list(zip(own, shares, strict=True))
    if all(fits(device, placed) for device, placed in wanted):
        yield 0, 0, within_quota(pool, ask, shares)
        return
    eviction = make_room(wanted, pool.host_room.get(own[0].node, 0))
    if eviction is not None:
        yield eviction.mib, 0, wait_for_eviction(pool, ask, (eviction, shares))


def _in_its_node(
    pool: PoolView, ask: Ask, parked: Parked, share: Share, own: Sequence[DeviceView]
) -> Iterator[Way]:
    group = _like(pool, parked, share, own, parked.node)
    found = best_fit(pool, group, share, ask.count)
    if parked.place != "device":
        if found is not None:
            yield 0, 1, within_quota(pool, ask, found[1])
            return
        room = cheapest_room(pool, group, share, ask.count)
        if room is not None:
            yield room[0].mib, 1, wait_for_eviction(pool, ask, room)
    elif not parked.stays and parked.mib <= pool.host_room.get(parked.node, 0):
        room = (Eviction(), found[1]) if found else _beside_its_own(pool, ask, parked, share, group)
        if room is not None:
            yield parked.mib + room[0].mib, 1, _change_device(pool, ask, parked, room)


def _beside_its_own(
    pool: PoolView, ask: Ask, parked: Parked, share: Share, group: Sequence[DeviceView]
) -> Room | None:
    """Others' memory that leaves so that the session can change its device: both go to one host memory."""
    left = pool.host_room[parked.node] - parked.mib
    rest = replace(pool, host_room={**pool.host_room, parked.node: left})
    return cheapest_room(rest, group, share, ask.count)


def _change_device(pool: PoolView, ask: Ask, parked: Parked, room: Room) -> Decision:
    """Queues until the session's memory, and whatever is in its way, has left for the host."""
    eviction, shares = room
    allowed = within_quota(pool, ask, shares)
    if allowed.outcome is not Outcome.GRANT:
        return allowed
    text = explain.changing_device(parked, shares)
    if eviction.sessions:
        others = explain.making_room(eviction.sessions, eviction.victims + eviction.leaving, shares)
        text = f"{text}; {others}"
    wants = tuple(placed.device_id for placed in shares)
    return Decision(Outcome.QUEUE, "full", text, wants=wants, evict=(parked.session_id, *eviction.sessions))


def _in_another_node(
    pool: PoolView, ask: Ask, parked: Parked, share: Share, own: Sequence[DeviceView]
) -> Iterator[Way]:
    reachable = any(device.healthy for device in pool.devices if device.node == parked.node)
    if parked.bound or parked.place == "image" or not reachable:
        return
    cost = SENDING_COST * parked.mib
    for node in (group[0].node for group in by_node(pool.devices)):
        if node == parked.node or node in parked.avoid:
            continue
        group = _like(pool, parked, share, own, node)
        found = best_fit(pool, group, share, ask.count)
        if found is not None:
            allowed = within_quota(pool, ask, found[1])
            if allowed.outcome is Outcome.GRANT:
                allowed = replace(allowed, explanation=explain.moving(parked, found[1]))
            yield cost, 2, allowed
            continue
        room = cheapest_room(pool, group, share, ask.count)
        if room is not None:
            yield cost + room[0].mib, 3, wait_for_eviction(pool, ask, room)


def _like(
    pool: PoolView, parked: Parked, share: Share, own: Sequence[DeviceView], node: str
) -> list[DeviceView]:
    """Devices of ``node`` that memory of this session can live on: of one kind with its own, and large enough."""
    kinds = {device.kind for device in own}
    most = max((parked.kept_on(index) for index in range(len(own))), default=0)
    return [
        device
        for device in pool.devices
        if device.node == node
        and kinds == {device.kind}
        and (placed := place_on(device, share)) is not None
        and placed.mib >= most
    ]
