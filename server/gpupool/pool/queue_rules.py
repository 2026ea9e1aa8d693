"""The queue: asks arrive, wait in order, are granted, give up.

The order is first come, first served, with one refinement: an ask that waits for room keeps the
devices on which it will most likely fit first free of later asks, which may pass it elsewhere. The
free part of a kept device never shrinks, so a large ask is always served in the end. An ask that
waits for its own user's quota, or for a node to come back, keeps nothing.
"""

from __future__ import annotations

from dataclasses import replace

from gpupool.pool import events, gang_rules, parking_rules
from gpupool.pool.disk_rules import make_host_room
from gpupool.pool.instructions import TellGranted, TellQueued, TellRefused
from gpupool.pool.state import AskRecord, LeaseRecord, key_of
from gpupool.pool.step import Step
from gpupool.pool.view import parked_session, pool_view
from gpupool.scheduler import decide
from gpupool.scheduler.model import Ask, Decision, Outcome, PoolView


def requested(step: Step, event: events.Requested) -> None:
    """A new ask, or the same ask again: then its caller joins what is there already."""
    state = step.state
    name = key_of(event.user, event.key)
    known = state.leases.get(state.keys.get(name, ""))
    if known is not None:
        _join_lease(step, event, known)
        return
    if name in state.asks:
        ask = state.asks[name]
        if ask.told is not None:
            step.do(TellQueued(ask.user, ask.key, ask.place, ask.reason, ask.eta))
        return
    problem, count = _problem_with_session(step, event)
    if problem is not None:
        refused = TellRefused(event.user, event.key, *problem)
        step.do(refused)
        _journal_refusal(step, event.user, refused, event.session_id)
        return
    number = 1 + max((ask.number for ask in state.asks.values()), default=0)
    state.asks[name] = AskRecord(
        id=name,
        number=number,
        user=event.user,
        key=event.key,
        milli=event.milli,
        mib=event.mib,
        count=count,
        session_id=_first_part(step, event.session_id),
        label=event.label,
        holder=event.holder,
        since=step.now,
        give_up_at=_give_up_at(step, event),
        duration=event.duration,
        reservation=event.reservation,
        strict=event.strict,
        nodes=event.nodes,
    )
    schedule(step)


def cancelled(step: Step, event: events.Cancelled) -> None:
    """Nobody waits any more. A lease on its way is kept a moment, for a caller that reconnects.

    Until then it is no reservation: nobody knows its id to release it, and deadlines are not stored, so
    after a restart of the pool only this tells it from one that is held on purpose.
    """
    state = step.state
    name = key_of(event.user, event.key)
    if name in state.asks:
        ask = state.asks[name]
        del state.asks[name]
        step.reschedule = True
        step.journal("cancelled", "the caller left the queue", user=ask.user, session_id=ask.session_id)
        return
    lease = state.leases.get(state.keys.get(name, ""))
    if lease is not None and lease.live:
        soon = step.now + step.timers.claim
        if lease.renew_by is not None:
            soon = min(soon, lease.renew_by)
        state.leases[lease.id] = replace(lease, renew_by=soon, reservation=False)


def schedule(step: Step) -> None:
    """Looks at every waiting ask, in order."""
    step.reschedule = False
    state = step.state
    reserved: set[str] = set()
    place = 0
    view: PoolView | None = None
    for ask in sorted(state.asks.values(), key=lambda a: a.number):
        if view is None:
            view = pool_view(state, step.timers, step.quotas, step.now)
        decision = _decide(step, ask, view, frozenset(reserved))
        if decision.outcome is Outcome.GRANT:
            gang_rules.grant(step, ask, decision)
            view = None
            continue
        # Room that is being made is as good as there: it is waited for, also by who would not wait for others.
        waits = ask.give_up_at is None or ask.give_up_at > step.now or bool(decision.evict)
        if decision.outcome is Outcome.REFUSE or not waits:
            _refuse(step, ask, decision)
            continue
        reserved.update(decision.wants)
        place += 1
        _tell_place(step, ask, place, decision, view)
        for session_id in decision.evict:
            where = "image" if session_id in decision.to_disk else "host"
            if parking_rules.begin(step, session_id, where, decision.explanation):
                view = None
    step.reschedule = False


def _decide(step: Step, ask: AskRecord, view: PoolView, reserved: frozenset[str]) -> Decision:
    state = step.state
    if not ask.session_id:
        wish = _wish(step, ask)
        view = replace(view, reserved=reserved)
        return make_host_room(state, view, wish, decide(view, wish))
    parts = state.session_parts(state.sessions[ask.session_id])
    for session in parts:
        lease = state.lease_of_session(session)
        if lease is not None and lease.live:
            text = f"session {session.id} is attached already by lease {lease.id}"
            return Decision(Outcome.REFUSE, "already-attached", text)
        if lease is not None:
            return Decision(Outcome.QUEUE, "full", "the last lease of this session is being given back")
    for session in parts:
        if session.parking is not None:
            where = parking_rules.where(session.parking.place)
            text = f"the session's memory is being moved to {where}; it goes on when that is done"
            return Decision(Outcome.QUEUE, "full", text, wants=ask.wants, evict=(session.id,))
    for session in parts:
        if session.state == "lost":
            text = f"node {session.node}, where the session's memory is, does not answer"
            return Decision(Outcome.QUEUE, "no-node", text)
    names = frozenset(session.id for session in parts)
    view = pool_view(state, step.timers, step.quotas, step.now, resumed=names)
    view = replace(view, reserved=reserved)
    wish = _wish(step, ask)
    return make_host_room(state, view, wish, decide(view, wish))


def _wish(step: Step, ask: AskRecord) -> Ask:
    """An ask as the scheduler reads it."""
    wish = Ask(ask.user, ask.milli, ask.mib, ask.count, nodes=ask.nodes)
    if not ask.session_id:
        return wish
    sessions = step.state.session_parts(step.state.sessions[ask.session_id])
    parts = tuple(parked_session(step.state, session, step.now) for session in sessions)
    return replace(wish, parked=parts[0]) if len(parts) == 1 else replace(wish, parts=parts)


def _first_part(step: Step, session_id: str) -> str:
    """A gang is named by its first session, whichever of them is asked for."""
    session = step.state.sessions.get(session_id)
    return session_id if session is None else session.gang or session.id


def _tell_place(step: Step, ask: AskRecord, place: int, decision: Decision, view: PoolView) -> None:
    eta = _eta(step, ask, view) if place == 1 and decision.reason == "full" else None
    told = (place, decision.explanation)
    changed = replace(ask, place=place, reason=decision.explanation, eta=eta, wants=decision.wants, told=told)
    if changed != ask:
        step.state.asks[ask.id] = changed
    if ask.told is None:
        step.journal(
            "queue", decision.explanation, user=ask.user, session_id=ask.session_id,
            data={"place": place, "reason": decision.reason, "key": ask.key},
        )  # fmt: skip
    if ask.told != told:
        step.do(TellQueued(ask.user, ask.key, place, decision.explanation, eta))


def _eta(step: Step, ask: AskRecord, view: PoolView) -> float | None:
    """Seconds until deadlines of leases make room for an ask; None when no deadline does."""
    deadlines = sorted(
        (lease.ends_at, lease.id)
        for lease in step.state.leases.values()
        if lease.holds and lease.ends_at is not None
    )
    wish = _wish(step, ask)
    gone: set[str] = set()
    for ends_at, lease_id in deadlines:
        gone.add(lease_id)
        devices = tuple(
            replace(device, held=tuple(h for h in device.held if h.lease_id not in gone))
            for device in view.devices
        )
        if decide(replace(view, devices=devices), wish).outcome is Outcome.GRANT:
            return max(0.0, ends_at - step.now)
    return None


def _refuse(step: Step, ask: AskRecord, decision: Decision) -> None:
    """Ends an ask without a lease."""
    waited = step.now - ask.since
    gave_up = decision.outcome is Outcome.QUEUE and ask.told is not None
    reason, text = decision.reason, decision.explanation
    if gave_up:
        reason, text = "timeout", f"waited {waited:.0f} s; {decision.explanation}"
    del step.state.asks[ask.id]
    refused = TellRefused(ask.user, ask.key, reason, text)
    step.do(refused)
    _journal_refusal(step, ask.user, refused, ask.session_id)


def _journal_refusal(step: Step, user: str, refused: TellRefused, session_id: str) -> None:
    step.journal(
        "refuse", refused.explanation, user=user, session_id=session_id,
        data={"reason": refused.reason, "key": refused.key},
    )  # fmt: skip


def _give_up_at(step: Step, event: events.Requested) -> float | None:
    if event.wait is None:
        return None
    session = step.state.sessions.get(event.session_id)
    lease = step.state.lease_of_session(session) if session else None
    if event.wait == 0 and lease is not None and not lease.live:
        # Its own last lease is on its way back: a moment's patience is not waiting for others.
        return step.now + step.timers.claim
    return step.now + event.wait


def _join_lease(step: Step, event: events.Requested, lease: LeaseRecord) -> None:
    if not lease.live:
        text = f"the lease {lease.id} that this ask was granted has ended (reason {lease.reason})"
        step.do(TellRefused(event.user, event.key, "lease-ended", text))
        return
    reservation = lease.reservation or event.reservation
    if lease.state == "attached":
        renew_by = None if reservation else step.now + step.timers.holder
        step.state.leases[lease.id] = replace(lease, renew_by=renew_by, reservation=reservation)
        step.do(TellGranted(event.user, event.key, lease.id))
    else:
        step.state.leases[lease.id] = replace(lease, renew_by=None, reservation=reservation)


def _problem_with_session(step: Step, event: events.Requested) -> tuple[tuple[str, str] | None, int]:
    """((reason, explanation), 0) when the session cannot be resumed, else (None, count of devices)."""
    if not event.session_id:
        return None, event.count or 1
    session = step.state.sessions.get(event.session_id)
    if session is None or session.user != event.user:
        text = f"the pool knows no session {event.session_id} of {event.user}"
        return ("unknown-session", text), 0
    if session.state == "closed":
        text = f"session {session.id} is closed (reason {session.reason}); ask for a new one"
        return ("unknown-session", text), 0
    devices = sum(len(part.device_ids) for part in step.state.session_parts(session))
    return None, event.count or devices
