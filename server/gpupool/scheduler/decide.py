"""The decision: grant, queue or refuse one ask against one state of the pool.

Placement is best fit: of the devices on which the share fits, the one whose remaining capacity
would be smallest; ties go to the lower id. Several shares go to distinct devices of one node, all
of the same milli (or MiB), never uneven.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpupool.scheduler import explain
from gpupool.scheduler.model import Ask, Decision, DeviceView, Outcome, PlacedShare, PoolView
from gpupool.shares import MAXIMUM_DEVICES, Share, ShareError


def decide(pool: PoolView, ask: Ask) -> Decision:
    """Grants, queues or refuses ``ask``.

    REFUSE means that waiting cannot help (too large for every device, above the user's quota by
    itself, smaller than what the resumed session keeps); QUEUE that it can.

    Raises:
        ValueError: the ask is malformed (not exactly one of milli and mib, count out of 1..8).
    """
    share = Share(milli=ask.milli, mib=ask.mib)
    if not 1 <= ask.count <= MAXIMUM_DEVICES:
        raise ValueError(f"count {ask.count} is not within 1..{MAXIMUM_DEVICES}")
    if ask.pinned:
        return _decide_pinned(pool, ask, share)
    if not pool.devices:
        return Decision(Outcome.QUEUE, "no-node", explain.no_devices())
    groups = _by_node(pool.devices)
    possible = [group for group in groups if len(_large_enough(group, share)) >= ask.count]
    if not possible:
        return Decision(Outcome.REFUSE, "bad-share", explain.never_fits(share, ask.count, groups))
    refusal = _above_own_quota(pool, ask, share, possible)
    if refusal is not None:
        return refusal
    candidates = [placed for group in possible if (placed := _best_fit(pool, group, share, ask.count))]
    if not candidates:
        return _wait_for_room(pool, ask, share, possible)
    shares = min(candidates, key=lambda found: (found[0], [s.device_id for s in found[1]]))[1]
    return _within_quota(pool, ask, shares)


def place_on(device: DeviceView, share: Share) -> PlacedShare | None:
    """``share`` in both numbers on ``device``; None when it is more than the whole device."""
    try:
        sized = share.on_device(device.usable)
    except (ShareError, ValueError):
        return None
    return PlacedShare(device.id, sized.milli, sized.mib)


def fits(device: DeviceView, placed: PlacedShare) -> bool:
    return device.healthy and placed.milli <= device.free_milli and placed.mib <= device.free_mib


def _by_node(devices: Sequence[DeviceView]) -> list[list[DeviceView]]:
    nodes: dict[str, list[DeviceView]] = {}
    for device in sorted(devices, key=lambda d: d.id):
        nodes.setdefault(device.node, []).append(device)
    return [nodes[name] for name in sorted(nodes)]


def _large_enough(group: Sequence[DeviceView], share: Share) -> list[DeviceView]:
    return [device for device in group if place_on(device, share) is not None]


def _best_fit(
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


def _above_own_quota(
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


def _within_quota(pool: PoolView, ask: Ask, shares: tuple[PlacedShare, ...]) -> Decision:
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


def _wait_for_room(
    pool: PoolView, ask: Ask, share: Share, possible: Sequence[Sequence[DeviceView]]
) -> Decision:
    """Queues an ask that no node has room for, and names the devices to keep for it."""
    healthy = [usable for group in possible if len(usable := _usable(group, share)) >= ask.count]
    if not healthy:
        return Decision(Outcome.QUEUE, "no-node", explain.unhealthy([d for g in possible for d in g]))
    best: tuple[int, int, list[DeviceView]] | None = None
    for group in healthy:
        freest = sorted(group, key=lambda d: (-d.free_milli, -d.free_mib, d.id))[: ask.count]
        free = (min(d.free_milli for d in freest), min(d.free_mib for d in freest))
        if best is None or free > best[:2]:
            best = (*free, freest)
    assert best is not None
    wants = tuple(device.id for device in best[2])
    text = explain.full(share, ask.count, best[2], pool.reserved)
    return Decision(Outcome.QUEUE, "full", text, wants=wants)


def _usable(group: Sequence[DeviceView], share: Share) -> list[DeviceView]:
    return [device for device in _large_enough(group, share) if device.healthy]


def _decide_pinned(pool: PoolView, ask: Ask, share: Share) -> Decision:
    """A resumed session goes back to its own devices: its memory is there."""
    known = {device.id: device for device in pool.devices}
    if ask.count != len(ask.pinned):
        text = explain.pinned_count(ask.count, ask.pinned)
        return Decision(Outcome.REFUSE, "bad-share", text)
    devices = [known[name] for name in ask.pinned if name in known]
    if len(devices) < len(ask.pinned):
        missing = next(name for name in ask.pinned if name not in known)
        return Decision(Outcome.QUEUE, "no-node", explain.pinned_missing(missing))
    shares = []
    for index, device in enumerate(devices):
        placed = place_on(device, share)
        if placed is None:
            text = explain.never_fits(share, 1, [[device]])
            return Decision(Outcome.REFUSE, "bad-share", text)
        kept = ask.kept_mib[index] if index < len(ask.kept_mib) else 0
        if placed.mib < kept:
            text = explain.below_kept(share, placed.mib, kept, device)
            return Decision(Outcome.REFUSE, "bad-share", text)
        shares.append(placed)
    refusal = _above_own_quota(pool, ask, share, [devices])
    if refusal is not None:
        return refusal
    sick = [device for device in devices if not device.healthy]
    if sick:
        return Decision(Outcome.QUEUE, "no-node", explain.unhealthy(sick))
    for device, placed in zip(devices, shares, strict=True):
        if device.id in pool.reserved or not fits(device, placed):
            text = explain.pinned_full(share, device, pool.reserved)
            return Decision(Outcome.QUEUE, "full", text, wants=tuple(ask.pinned))
    return _within_quota(pool, ask, tuple(shares))
