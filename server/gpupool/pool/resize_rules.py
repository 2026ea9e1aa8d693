"""Changing the size of a live lease where it is. It never moves, and it waits for nothing but parked memory.

Both sizes stay taken until the worker has confirmed. A share that would grow but for memory of parked sessions has that
memory moved, and its caller is told so: asking again a moment later finds the room.
"""

from __future__ import annotations

from dataclasses import replace

from gpupool.pool import events, parking_rules
from gpupool.pool.instructions import TellResized
from gpupool.pool.messages import apply_lease
from gpupool.pool.state import LeaseRecord, Resize
from gpupool.pool.step import Step
from gpupool.pool.view import pool_view
from gpupool.scheduler import explain
from gpupool.scheduler.evict import make_room
from gpupool.scheduler.fit import place_on
from gpupool.scheduler.model import DeviceView, PlacedShare, PoolView
from gpupool.shares import Share

#: (reason, explanation)
Refusal = tuple[str, str]
#: What a caller is told whose room is being made.
MAKING_ROOM = "making-room"


def resized(step: Step, event: events.Resized) -> None:
    lease = step.state.leases.get(event.lease_id)
    if lease is None or lease.state != "attached":
        state = "unknown" if lease is None else lease.state
        step.do(
            TellResized(event.lease_id, "not-attached", f"lease {event.lease_id} is {state}, not attached")
        )
        return
    if lease.resize is not None:
        step.do(TellResized(lease.id, "busy", "an earlier resize of this lease is still under way"))
        return
    refused, shares = _new_size(step, lease, Share(milli=event.milli, mib=event.mib))
    if refused is not None:
        step.do(TellResized(lease.id, *refused))
        if refused[0] != MAKING_ROOM:
            step.journal(
                "resize-refused", refused[1], user=lease.user, lease_id=lease.id, session_id=lease.session_id
            )
        return
    if shares == lease.shares:
        step.do(TellResized(lease.id, "", ""))
        return
    session = step.state.sessions[lease.session_id]
    number = apply_lease(step, session, lease.epoch, shares)
    resize = Resize(shares, number, step.now)
    step.state.leases[lease.id] = replace(lease, resize=resize, covered_at=step.now)
    step.journal("resize", explain.granted(shares), user=lease.user, lease_id=lease.id, session_id=session.id)


def _new_size(step: Step, lease: LeaseRecord, share: Share) -> tuple[Refusal | None, tuple[PlacedShare, ...]]:
    """(refusal, shares) of a resize; a part that shrinks always fits."""
    view = pool_view(step.state, step.timers, step.quotas, step.now, without_lease=lease.id)
    known = {device.id: device for device in view.devices}
    kept_for_others = frozenset(name for ask in step.state.asks.values() for name in ask.wants)
    shares = []
    grown = []
    for old in lease.shares:
        device = known[old.device_id]
        placed = place_on(device, share)
        if placed is None:
            return ("bad-share", explain.never_fits(share, 1, [[device]])), ()
        shares.append(placed)
        if placed.milli <= old.milli and placed.mib <= old.mib:
            continue
        if not device.healthy:
            return ("no-node", explain.unhealthy([device])), ()
        if device.id in kept_for_others or placed.milli > device.free_milli:
            return ("full", explain.full(share, 1, [device], replace(view, reserved=kept_for_others))), ()
        grown.append((device, placed))
    quota = view.quota_of(lease.user)
    held, _ = view.held_by(lease.user)
    milli = sum(s.milli for s in shares)
    if quota.milli is not None and milli > sum(s.milli for s in lease.shares) and held + milli > quota.milli:
        return ("quota", explain.quota_used(lease.user, milli, held, quota.milli)), ()
    return _room_for(step, view, grown, share), tuple(shares)


def _room_for(
    step: Step, view: PoolView, grown: list[tuple[DeviceView, PlacedShare]], share: Share
) -> Refusal | None:
    """None when there is room for the parts that grow; parked memory in the way is told to leave."""
    short = [(device, placed) for device, placed in grown if placed.mib > device.free_mib]
    if not short:
        return None
    eviction = make_room(short, view.host_room.get(short[0][0].node, 0))
    if eviction is None:
        return "full", explain.full(share, 1, [short[0][0]], view)
    text = explain.making_room(
        eviction.sessions, eviction.victims + eviction.leaving, tuple(placed for _, placed in short)
    )
    for held in eviction.victims:
        parking_rules.begin(step, held.session_id, "host", text)
    return MAKING_ROOM, text
