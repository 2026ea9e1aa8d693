"""The pool and an ask as the scheduler reads them."""

from __future__ import annotations

from dataclasses import replace

from gpupool.model.state import AskRecord, SessionRecord
from gpupool.pool.leases import parking_rules
from gpupool.pool.model.holds import keeps_place
from gpupool.pool.model.step import Step
from gpupool.pool.model.view import parked_session, pool_view
from gpupool.pool.projects import limit_rules
from gpupool.scheduler.model import Ask, Decision, Outcome, PoolView
from gpupool.sentences import param, say


def current_view(step: Step) -> PoolView:
    return pool_view(step.state, step.timers, limit_rules.quotas(step.state, step.quotas), step.now)


def wish_of(step: Step, ask: AskRecord) -> Ask:
    """An ask as the scheduler reads it."""
    wish = Ask(
        ask.user, ask.milli, ask.mib, ask.count, nodes=ask.nodes, filters=ask.filters, pools=ask.pools,
        isolated=ask.isolated,
    )  # fmt: skip
    sessions = _parts(step, ask)
    if not sessions:
        return wish
    wish = replace(wish, isolated=sessions[0].isolated)
    parts = tuple(parked_session(step.state, session, step.now) for session in sessions)
    return replace(wish, parked=parts[0]) if len(parts) == 1 else replace(wish, parts=parts)


def own_places(step: Step, ask: AskRecord) -> set[str]:
    """Devices where room is kept for the sessions that go on, enough for what is asked: nobody else counts on that."""
    return {
        share.device_id
        for session in _parts(step, ask)
        if keeps_place(step.state, session, step.now)
        for share in session.kept_place
        if (ask.milli or 0) <= share.milli and (ask.mib or 0) <= share.mib
    }


def resumed_by(step: Step, ask: AskRecord) -> frozenset[str]:
    """The sessions that go on by an ask."""
    return frozenset(part.id for part in _parts(step, ask))


def _parts(step: Step, ask: AskRecord) -> list[SessionRecord]:
    """The sessions that an ask resumes."""
    return step.state.session_parts(step.state.sessions[ask.session_id]) if ask.session_id else []


def session_obstacle(step: Step, ask: AskRecord) -> Decision | None:
    """Why a session cannot go on now, whatever room there is."""
    parts = _parts(step, ask)
    for session in parts:
        lease = step.state.lease_of_session(session)
        if lease is not None and lease.live:
            said = say("attached-already", session=param.text(session.id), lease=param.text(lease.id))
            return Decision(Outcome.REFUSE, "already-attached", said)
        if lease is not None:
            return Decision(Outcome.QUEUE, "full", say("lease-on-its-way"))
    for session in parts:
        if session.parking is not None:
            where = parking_rules.where(session.parking.place)
            said = say("memory-moving", place=param.text(where))
            return Decision(Outcome.QUEUE, "full", said, wants=ask.wants, evict=(session.id,))
    for session in parts:
        if session.state == "lost":
            return Decision(Outcome.QUEUE, "no-node", say("node-silent", node=param.node(session.node)))
    return None
