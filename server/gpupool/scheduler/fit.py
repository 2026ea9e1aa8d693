"""Whether shares fit: in their user's quota, and with whose leaving in the devices of one node.

Where they go when there is room the placement policy says (`scheduler/fleet.py`). For several nodes see `scheduler/gang.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpupool.scheduler import explain
from gpupool.scheduler.candidates import Candidates
from gpupool.scheduler.evict import Eviction, make_room
from gpupool.scheduler.fleet import Fleet
from gpupool.scheduler.model import Decision, DeviceView, Outcome, PlacedShare, Request
from gpupool.scheduler.placement.cluster import Integers
from gpupool.scheduler.placement.policy import Mask
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.sizes import fits, place_on
from gpupool.sentences import NOTHING
from gpupool.shares import WHOLE_DEVICE_MILLI, Share

__all__ = [
    "Room",
    "above_own_quota",
    "above_quota",
    "cheapest_room",
    "fits",
    "out_of_quota",
    "place_on",
    "rooms",
    "wait_for_eviction",
    "within_quota",
]

#: Milli of a device that cannot hold a share: more than any sum of a quota.
_NEVER = 1 << 40

#: What leaves, and the shares that fit then.
Room = tuple[Eviction, tuple[PlacedShare, ...]]


def above_own_quota(
    pool: PoolView, request: Request, share: Share, one_node: Candidates, kinds: Sequence[Candidates] = ()
) -> Decision | None:
    """What keeps a request from its user wherever it is placed: on one node, or on one of ``kinds``; None: nothing does."""
    limited = pool.quota_of(request.user).milli is not None
    least = _least_milli(pool.fleet, share, request.count, one_node, kinds) if limited else 0
    return above_quota(pool, request.user, least, request.count)


def above_quota(pool: PoolView, user: str, milli: int, shares: int) -> Decision | None:
    """Why a user may not have so much, which no device changes; None: they may.

    A refusal when it is above the quota by itself; else it waits until the user holds less. It is looked at before the devices:
    what could not be granted in an empty pool keeps none of them from others, and no more of them would help.
    """
    quota = pool.quota_of(user)
    if quota.shares is not None and shares > quota.shares:
        return Decision(Outcome.REFUSE, "quota", explain.shares_quota_never(user, shares, quota.shares))
    if quota.milli is not None and milli > quota.milli:
        return Decision(Outcome.REFUSE, "quota", explain.quota_never(user, milli, quota.milli))
    return out_of_quota(pool, user, milli, shares)


def _least_milli(
    fleet: Fleet, share: Share, count: int, one_node: Candidates, kinds: Sequence[Candidates]
) -> int:
    """Milli of all shares where that is the least."""
    if share.milli is not None:
        return count * share.milli
    each = milli_of(fleet, share)
    possible = []
    if one_node.devices.shape[1] >= count:
        per_row = np.sort(np.where(one_node.devices, each, _NEVER), axis=1)[:, :count].sum(axis=1)
        possible.append(int(per_row.min()))
    possible += [int(np.sort(each[kind.devices])[:count].sum()) for kind in kinds]
    return min(possible)


def milli_of(fleet: Fleet, share: Share) -> Integers:
    """Milli of ``share`` per row and column; more than a device has where it cannot lie."""
    if share.milli is not None:
        return np.full(fleet.class_of.shape, share.milli, np.int64)
    placed = [place_on(device, share) for device in fleet.classes]
    every = np.array([WHOLE_DEVICE_MILLI + 1 if one is None else one.milli for one in placed], np.int64)
    each: Integers = every[fleet.class_of]
    return each


def out_of_quota(pool: PoolView, user: str, milli: int, shares: int) -> Decision | None:
    """Queues what a user may not have beside what they hold; None: they may."""
    quota = pool.quota_of(user)
    if quota.milli is None and quota.shares is None:
        return None  # what is held takes long to count in a what-if
    held_milli, held_shares = pool.held_by(user)
    if quota.milli is not None and held_milli + milli > quota.milli:
        text = explain.quota_used(user, milli, held_milli, quota.milli)
        return Decision(Outcome.QUEUE, "quota", text)
    if quota.shares is not None and held_shares + shares > quota.shares:
        text = explain.shares_quota_used(user, shares, held_shares, quota.shares)
        return Decision(Outcome.QUEUE, "quota", text)
    return None


def within_quota(
    pool: PoolView, request: Request, shares: tuple[PlacedShare, ...], *, told: bool = True
) -> Decision:
    """Grants a placement that fits unless the user holds too much already; without words if nobody is `told`."""
    asked = sum(share.milli for share in shares)
    above = out_of_quota(pool, request.user, asked, len(shares))
    if above is not None:
        return above
    return Decision(Outcome.GRANT, "", explain.granted(shares) if told else NOTHING, shares)


def rooms(
    pool: PoolView, candidates: Candidates, share: Share, count: int, rows: Mask | None = None
) -> Iterator[Room]:
    """Per node where parked memory is in the way and nothing else: the devices that the fewest bytes must leave."""
    fleet = pool.fleet
    if not fleet.keeps_parked:
        return
    possible = with_compute(fleet, candidates, share)
    wanted = (possible.sum(axis=1) >= count) & (fleet.parked > 0)
    if rows is not None:
        wanted &= rows
    for row in np.flatnonzero(wanted).tolist():
        room = cheapest_room(pool, fleet.on_row(row, possible), share, count)
        if room is not None:
            yield room


def with_compute(fleet: Fleet, candidates: Candidates, share: Share) -> Mask:
    """The candidates that lack memory at most."""
    possible: Mask = (
        candidates.devices & fleet.healthy & ~fleet.kept & (fleet.free_milli >= milli_of(fleet, share))
    )
    return possible


def cheapest_room(pool: PoolView, group: Sequence[DeviceView], share: Share, count: int) -> Room | None:
    """The ``count`` devices of one node that the fewest bytes of parked memory must leave; None: no such devices."""
    if not group:
        return None
    host_room = pool.host_room.get(group[0].node, 0)
    ranked = []
    for device in group:
        placed = place_on(device, share)
        if placed is None or device.id in pool.reserved:
            continue
        alone = make_room([(device, placed)], host_room)
        if alone is not None:
            remaining = (device.free_milli - placed.milli, device.free_mib - placed.mib)
            ranked.append((alone.mib, remaining, device.id, device, placed))
    if len(ranked) < count:
        return None
    ranked.sort(key=lambda row: row[:3])
    chosen = sorted(ranked[:count], key=lambda row: row[2])
    eviction = make_room([(row[3], row[4]) for row in chosen], host_room)
    return None if eviction is None else (eviction, tuple(row[4] for row in chosen))


def wait_for_eviction(pool: PoolView, request: Request, room: Room) -> Decision:
    """Queues a request until memory of parked sessions has left, unless its user's quota is in the way."""
    eviction, shares = room
    allowed = within_quota(pool, request, shares)
    if allowed.outcome is not Outcome.GRANT:
        return allowed
    text = explain.making_room(eviction.victims + eviction.leaving, shares)
    wants = tuple(share.device_id for share in shares)
    return Decision(Outcome.QUEUE, "full", text, wants=wants, evict=eviction.sessions)
