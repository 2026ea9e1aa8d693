"""Where shares fit, in their node, their quota, and with whose leaving.

Best fit: of the devices on which the share fits, the one whose remaining capacity would be smallest; ties go to
the lower id. Several shares go to distinct devices of one node, all of the same milli (or MiB), never uneven. For
several nodes see `scheduler/gang.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpupool.scheduler import explain
from gpupool.scheduler.evict import Eviction, make_room
from gpupool.scheduler.model import Ask, Decision, DeviceView, Outcome, PlacedShare, PoolView
from gpupool.shares import Share, ShareError

#: What leaves, and the shares that fit then.
Room = tuple[Eviction, tuple[PlacedShare, ...]]


def place_on(device: DeviceView, share: Share) -> PlacedShare | None:
    """``share`` in both numbers on ``device``; None when it is more than the whole device."""
    try:
        sized = share.on_device(device.usable)
    except (ShareError, ValueError):
        return None
    return PlacedShare(device.id, sized.milli, sized.mib)


def fits(device: DeviceView, placed: PlacedShare) -> bool:
    return device.healthy and placed.milli <= device.free_milli and placed.mib <= device.free_mib


def by_node(devices: Sequence[DeviceView]) -> list[list[DeviceView]]:
    nodes: dict[str, list[DeviceView]] = {}
    for device in sorted(devices, key=lambda d: d.id):
        nodes.setdefault(device.node, []).append(device)
    return [nodes[name] for name in sorted(nodes)]


def large_enough(group: Sequence[DeviceView], share: Share) -> list[DeviceView]:
    return [device for device in group if place_on(device, share) is not None]


def best_fit(
    pool: PoolView, group: Sequence[DeviceView], share: Share, count: int
) -> tuple[tuple[int, int], tuple[PlacedShare, ...]] | None:
    """The tightest ``count`` devices of one node and the capacity that would remain on them."""
    ranked = []
    for device in group:
        placed = place_on(device, share)
        if placed is None or device.id in pool.reserved or not fits(device, placed):
            continue
        remaining = (device.free_milli - placed.milli, device.free_mib - placed.mib)
        ranked.append((remaining, device.id, placed))
    if len(ranked) < count:
        return None
    ranked.sort(key=lambda row: row[:2])
    chosen = sorted(ranked[:count], key=lambda row: row[1])
    total = (sum(row[0][0] for row in chosen), sum(row[0][1] for row in chosen))
    return total, tuple(row[2] for row in chosen)


def above_own_quota(
    pool: PoolView, ask: Ask, share: Share, possible: Sequence[Sequence[DeviceView]]
) -> Decision | None:
    """A refusal when the ask alone is above its user's quota wherever it is placed."""
    quota = pool.quota_of(ask.user)
    if quota.shares is not None and ask.count > quota.shares:
        text = explain.shares_quota_never(ask.user, ask.count, quota.shares)
        return Decision(Outcome.REFUSE, "quota", text)
    if quota.milli is None:
        return None
    least = min(
        sum(sorted(placed.milli for device in group if (placed := place_on(device, share)))[: ask.count])
        for group in possible
    )
    if least <= quota.milli:
        return None
    return Decision(Outcome.REFUSE, "quota", explain.quota_never(ask.user, least, quota.milli))


def within_quota(pool: PoolView, ask: Ask, shares: tuple[PlacedShare, ...]) -> Decision:
    """Grants a placement that fits unless the user holds too much already."""
    quota = pool.quota_of(ask.user)
    held_milli, held_shares = pool.held_by(ask.user)
    asked = sum(share.milli for share in shares)
    if quota.milli is not None and held_milli + asked > quota.milli:
        text = explain.quota_used(ask.user, asked, held_milli, quota.milli)
        return Decision(Outcome.QUEUE, "quota", text)
    if quota.shares is not None and held_shares + len(shares) > quota.shares:
        text = explain.shares_quota_used(ask.user, len(shares), held_shares, quota.shares)
        return Decision(Outcome.QUEUE, "quota", text)
    return Decision(Outcome.GRANT, "", explain.granted(shares), shares)


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


def wait_for_eviction(pool: PoolView, ask: Ask, room: Room) -> Decision:
    """Queues an ask until memory of parked sessions has left, unless its user's quota is in the way."""
    eviction, shares = room
    allowed = within_quota(pool, ask, shares)
    if allowed.outcome is not Outcome.GRANT:
        return allowed
    text = explain.making_room(eviction.sessions, eviction.victims + eviction.leaving, shares)
    wants = tuple(share.device_id for share in shares)
    return Decision(Outcome.QUEUE, "full", text, wants=wants, evict=eviction.sessions)
