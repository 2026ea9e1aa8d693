"""Changing the size of a live lease where it is. It never moves, and it waits for nothing but parked memory.

Both sizes stay taken until the worker has confirmed. One that has said nothing may have either: it is told the new size
again with each heartbeat of its node until it answers. A share that would grow but for memory of parked sessions has that
memory moved, and its caller is told so: asking again a moment later finds the room.

The parts of a gang change together: the new size counts when all their workers have confirmed. If one refuses, the
others are told the old size again, for which the room has been kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from gpupool.model import events
from gpupool.model.instructions import TellResized
from gpupool.model.state import LeaseRecord, Resize
from gpupool.pool.leases import budget_rules, lease_rules, parking_rules
from gpupool.pool.model.messages import apply_lease
from gpupool.pool.model.step import Step
from gpupool.pool.model.view import pool_view
from gpupool.pool.projects import limit_rules, standing_view
from gpupool.pool.projects.project_rules import project_tree
from gpupool.scheduler import explain
from gpupool.scheduler.evict import Eviction, make_room
from gpupool.scheduler.fit import place_on
from gpupool.scheduler.model import DeviceView, PlacedShare
from gpupool.scheduler.pool_view import PoolView
from gpupool.sentences import NOTHING, Sentence, param, say
from gpupool.shares import Share

#: (reason, sentence)
Refusal = tuple[str, Sentence]
#: What a caller is told whose room is being made.
MAKING_ROOM = "making-room"


def resized(step: Step, event: events.Resized) -> None:
    """A lease grows or shrinks where it is; the worker has to confirm it before anybody counts on it."""
    lease = step.state.leases.get(event.lease_id)
    if lease is None or lease.state != "attached":
        state = "unknown" if lease is None else lease.state
        said = say("resize.not-attached", lease=param.text(event.lease_id), state=param.text(state))
        step.do(TellResized(event.lease_id, "not-attached", said))
        return
    parts = step.state.lease_parts(lease)
    if any(part.resize is not None for part in parts):
        step.do(TellResized(lease.id, "busy", say("resize.busy")))
        return
    refused, sizes = _new_sizes(step, parts, Share(milli=event.milli, mib=event.mib))
    if refused is not None:
        step.do(TellResized(lease.id, *refused))
        if refused[0] != MAKING_ROOM:
            step.journal(
                "resize-refused", refused[1], user=lease.user, lease_id=lease.id, session_id=lease.session_id
            )
        return
    if all(shares == part.shares for part, shares in zip(parts, sizes, strict=True)):
        step.do(TellResized(lease.id, "", NOTHING))
        return
    step.queue.changed()
    for part, shares in zip(parts, sizes, strict=True):
        _apply(step, part, shares)
        step.journal(
            "resize",
            explain.granted(shares),
            user=part.user,
            lease_id=part.id,
            session_id=part.session_id,
        )


def answered(step: Step, lease: LeaseRecord, event: events.LeaseApplied) -> None:
    """The worker's answer to a new size."""
    assert lease.resize is not None
    if event.ok:
        _confirmed(step, lease, lease.resize)
    elif event.unsure:
        step.state.leases[lease.id] = replace(lease, resize=replace(lease.resize, request=0))
        step.do(TellResized(lease.gang or lease.id, "worker-failed", _refusal(event)))
    else:
        _refused(step, lease, lease.resize, event)
    step.reschedule = True


def tell_again(step: Step, lease: LeaseRecord) -> None:
    """Tells a worker the size whose order it has not answered, or may never have had."""
    assert lease.resize is not None
    session = step.state.sessions[lease.session_id]
    number = apply_lease(step, session, lease.epoch, lease.resize.shares)
    step.state.leases[lease.id] = replace(
        lease, resize=replace(lease.resize, request=number), covered_at=step.now
    )


def _refusal(event: events.LeaseApplied) -> Sentence:
    return say("resize.refused", why=param.text(event.message))


def _apply(step: Step, lease: LeaseRecord, shares: tuple[PlacedShare, ...]) -> None:
    session = step.state.sessions[lease.session_id]
    number = apply_lease(step, session, lease.epoch, shares)
    resize = Resize(shares, number, step.now)
    step.state.leases[lease.id] = replace(lease, resize=resize, covered_at=step.now)


def _confirmed(step: Step, lease: LeaseRecord, resize: Resize) -> None:
    state = step.state
    state.leases[lease.id] = replace(lease, resize=replace(resize, done=True))
    parts = state.lease_parts(lease)
    if all(part.resize is not None for part in parts):
        if not all(part.resize is not None and part.resize.done for part in parts):
            return
        step.do(TellResized(lease.gang or lease.id, "", NOTHING))
    else:
        # Another part has kept its size, so this one has gone back to it: its caller knows already.
        parts = [part for part in parts if part.id == lease.id]
    for part in parts:
        assert part.resize is not None
        shares = part.resize.shares
        state.leases[part.id] = replace(part, shares=shares, resize=None)
        step.journal(
            "resized", "the worker confirmed the new size", user=part.user, lease_id=part.id,
            session_id=part.session_id,
            data={"milli": [s.milli for s in shares], "mib": [s.mib for s in shares]},
        )  # fmt: skip


def _refused(step: Step, lease: LeaseRecord, resize: Resize, event: events.LeaseApplied) -> None:
    state = step.state
    others = [part for part in state.lease_parts(lease) if part.id != lease.id]
    if any(part.resize is None for part in others):
        # It was told the size that it had before; a worker that refuses this serves no more.
        said = say("resize.refused-former", why=param.text(event.message))
        lease_rules.begin_release(step, lease, "lost", said)
        return
    state.leases[lease.id] = replace(lease, resize=None)
    used = event.used_mib
    asked = [
        say("resize.mib-on", mib=param.mib(share.mib), device=param.device(share.device_id))
        for share in resize.shares
    ]
    why = _refusal(event)
    if used:
        why = say("resize.in-use", used=param.mib(used), asked=asked)
    # That a worker could not be asked is no word about the size, and it may be asked again.
    refusal = "in-use" if used else "worker-refused" if event.answered else "worker-failed"
    step.do(TellResized(lease.gang or lease.id, refusal, why))
    step.journal("resize-refused", why, user=lease.user, lease_id=lease.id, session_id=lease.session_id)
    for part in others:
        if part.resize is not None:
            # Whichever of the two sizes it has now: the larger one stays taken until it is the old one.
            _apply(step, replace(part, shares=part.resize.shares), part.shares)


def _new_sizes(
    step: Step, parts: Sequence[LeaseRecord], share: Share
) -> tuple[Refusal | None, list[tuple[PlacedShare, ...]]]:
    """(refusal, shares of each part) of a resize; a share that shrinks always fits."""
    quotas = limit_rules.quotas(step.state, step.quotas)
    view = pool_view(step.state, step.timers, quotas, step.now, without_leases={part.id for part in parts})
    known = {device.id: device for device in view.devices}
    kept_for_others = frozenset(
        name for request in step.state.index.wanting.records() for name in request.wants
    )
    old_shares = [old for part in parts for old in part.shares]
    shares = []
    grown = []
    for old in old_shares:
        device = known[old.device_id]
        placed = place_on(device, share)
        if placed is None:
            return ("bad-share", explain.never_fits(share, 1, [[device]])), []
        shares.append(placed)
        if placed.milli <= old.milli and placed.mib <= old.mib:
            continue
        if not device.healthy:
            return ("no-node", explain.unhealthy([device])), []
        if device.id in kept_for_others or placed.milli > device.free_milli:
            return ("full", explain.full(share, 1, [device], replace(view, reserved=kept_for_others))), []
        grown.append((device, placed))
    user = parts[0].user
    quota = view.quota_of(user)
    held, _ = view.held_by(user)
    milli = sum(s.milli for s in shares)
    if quota.milli is not None and milli > sum(s.milli for s in old_shares) and held + milli > quota.milli:
        return ("quota", explain.quota_used(user, milli, held, quota.milli)), []
    if milli > sum(s.milli for s in old_shares):
        refused = _beyond_limits(step, parts, milli, milli - sum(s.milli for s in old_shares))
        if refused is not None:
            return refused, []
    rest = iter(shares)
    sizes = [tuple(next(rest) for _ in part.shares) for part in parts]
    return _room_for(step, view, grown, share), sizes


def _beyond_limits(step: Step, parts: Sequence[LeaseRecord], milli: int, more: int) -> Refusal | None:
    """Why a lease may not grow, whatever room there is: what holds for requests holds for this, too."""
    lease = parts[0]
    refused = limit_rules.too_large(step.state, lease.user, milli)
    refused = refused or budget_rules.refused(step, lease.user, more, 0.0)
    if refused is not None:
        return refused.reason, refused.said
    standings = standing_view.standings(step.state, project_tree(step.state), {})
    for place in standing_view.kept_places(step.state, step.now).values():
        standings.granted(place)
    verdict = standings.admit(lease.project, more, lease.kind)
    verdict = verdict and standings.admit_now(lease.project, more)
    return None if verdict else (verdict.reason, verdict.said)


def _room_for(
    step: Step, view: PoolView, grown: list[tuple[DeviceView, PlacedShare]], share: Share
) -> Refusal | None:
    """None when there is room for the shares that grow; parked memory in the way is told to leave."""
    short = [(device, placed) for device, placed in grown if placed.mib > device.free_mib]
    if not short:
        return None
    evictions: list[Eviction] = []
    for node, rows in groupby(short, key=lambda row: row[0].node):
        on_node = list(rows)
        eviction = make_room(on_node, view.host_room.get(node, 0))
        if eviction is None:
            return "full", explain.full(share, 1, [on_node[0][0]], view)
        evictions.append(eviction)
    leaving = [held for eviction in evictions for held in (*eviction.victims, *eviction.leaving)]
    text = explain.making_room(leaving, tuple(placed for _, placed in short))
    for held in (held for eviction in evictions for held in eviction.victims):
        parking_rules.begin(step, held.session_id, "host", text)
    return MAKING_ROOM, text
