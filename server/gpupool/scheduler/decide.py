"""The decision: grant, queue or refuse one ask against one state of the pool.

Placement is best fit (`scheduler/fit.py`). When nothing fits, but would if memory of parked sessions left its
device, the ask waits and names the sessions that are to leave (`scheduler/evict.py`). A parked session that is
resumed has ways of its own (`scheduler/resume.py`).

Several shares go to one node. They go to several (`scheduler/gang.py`) only when no single one has room, not even after
parked memory has left, and the ask allows it: it says so, or leaves it to the pool and no node could ever serve it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpupool.scheduler import explain
from gpupool.scheduler.fit import (
    above_own_quota,
    best_fit,
    by_node,
    cheapest_room,
    large_enough,
    wait_for_eviction,
    within_quota,
)
from gpupool.scheduler.gang import decide_gang, may_span, of_one_kind, spread, spread_room
from gpupool.scheduler.model import Ask, Decision, DeviceView, Outcome, PoolView
from gpupool.scheduler.resume import decide_resume
from gpupool.shares import MAXIMUM_DEVICES, Share


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
    if ask.parts:
        return decide_gang(pool, ask, share)
    if ask.parked is not None:
        return decide_resume(pool, ask, ask.parked, share)
    if not pool.devices:
        return Decision(Outcome.QUEUE, "no-node", explain.no_devices())
    groups = by_node(pool.devices)
    nodes = [group for group in groups if len(large_enough(group, share)) >= ask.count]
    span = len(groups) > 1 and may_span(ask, one_node=bool(nodes))
    kinds = of_one_kind(pool.devices, share, ask.count) if span else []
    if not nodes and not kinds:
        text = explain.never_fits(share, ask.count, groups, span=span, only_one=ask.nodes == "one")
        return Decision(Outcome.REFUSE, "bad-share", text)
    refusal = above_own_quota(pool, ask, share, [*nodes, *kinds])
    if refusal is not None:
        return refusal
    candidates = [placed for group in nodes if (placed := best_fit(pool, group, share, ask.count))]
    if candidates:
        shares = min(candidates, key=lambda found: (found[0], [s.device_id for s in found[1]]))[1]
        return within_quota(pool, ask, shares)
    rooms = [room for group in nodes if (room := cheapest_room(pool, group, share, ask.count))]
    if rooms:
        return wait_for_eviction(pool, ask, min(rooms, key=lambda room: (room[0].mib, room[1][0].device_id)))
    apart = spread(pool, kinds, share, ask.count)
    if apart is not None:
        return within_quota(pool, ask, apart)
    room = spread_room(pool, kinds, share, ask.count)
    if room is not None:
        return wait_for_eviction(pool, ask, room)
    waiting = _wait_for_room(pool, ask, share, [*nodes, *kinds], span=span)
    if ask.nodes == "auto" and not span and ask.count > 1:
        elsewhere = spread(pool, of_one_kind(pool.devices, share, ask.count), share, ask.count)
        if elsewhere is not None:
            waiting = replace(waiting, explanation=waiting.explanation + explain.would_span(elsewhere))
    return waiting


def _wait_for_room(
    pool: PoolView, ask: Ask, share: Share, possible: Sequence[Sequence[DeviceView]], *, span: bool
) -> Decision:
    """Queues an ask that has no room anywhere, and names the devices to keep for it."""
    healthy = [usable for group in possible if len(usable := _usable(group, share)) >= ask.count]
    if not healthy:
        devices = {device.id: device for group in possible for device in group}
        return Decision(Outcome.QUEUE, "no-node", explain.unhealthy(list(devices.values())))
    best: tuple[int, int, list[DeviceView]] | None = None
    for group in healthy:
        freest = sorted(group, key=lambda d: (-d.free_milli, -d.free_mib, d.id))[: ask.count]
        free = (min(d.free_milli for d in freest), min(d.free_mib for d in freest))
        if best is None or free > best[:2]:
            best = (*free, freest)
    assert best is not None
    wants = tuple(device.id for device in best[2])
    text = explain.full(share, ask.count, best[2], pool, span=span)
    return Decision(Outcome.QUEUE, "full", text, wants=wants)


def _usable(group: Sequence[DeviceView], share: Share) -> list[DeviceView]:
    return [device for device in large_enough(group, share) if device.healthy]
