"""The pool and a request as the scheduler reads them."""

from __future__ import annotations

from gpupool.model.state import RequestRecord, SessionRecord
from gpupool.pool.leases import parking_rules
from gpupool.pool.model.holds import keeps_place
from gpupool.pool.model.step import Step
from gpupool.pool.model.view import parked_session, pool_view, wish_for_new_session
from gpupool.pool.projects import limit_rules
from gpupool.records import replace
from gpupool.scheduler.model import Decision, Outcome, Request
from gpupool.scheduler.pool_view import PoolView
from gpupool.sentences import param, say
from gpupool.shares import least_milli


def current_view(step: Step) -> PoolView:
    """The pool as it is now, with the limits of users."""
    return pool_view(step.state, step.timers, limit_rules.quotas(step.state, step.quotas), step.now)


def least_milli_in(view: PoolView, milli: int | None, mib: int | None, count: int) -> int:
    """What such a wish takes of these devices, at least; one that names milli-GPU takes the same of all."""
    usable = {device.usable for device in view.fleet.classes} if milli is None else ()
    return least_milli(usable, milli, mib, count)


def wish_of(step: Step, request: RequestRecord) -> Request:
    """A request as the scheduler reads it."""
    wish = wish_for_new_session(request)
    sessions = _parts(step, request)
    if not sessions:
        return wish
    wish = replace(wish, isolated=sessions[0].isolated)
    parts = tuple(parked_session(step.state, session, step.now) for session in sessions)
    return replace(wish, parked=parts[0]) if len(parts) == 1 else replace(wish, parts=parts)


def own_places(step: Step, request: RequestRecord) -> set[str]:
    """Devices where room is kept for the sessions that go on, enough for what is asked: nobody else counts on that."""
    return {
        share.device_id
        for session in _parts(step, request)
        if keeps_place(step.state, session, step.now)
        for share in session.kept_place
        if (request.milli or 0) <= share.milli and (request.mib or 0) <= share.mib
    }


def resumed_by(step: Step, request: RequestRecord) -> frozenset[str]:
    """The sessions that go on by a request."""
    return frozenset(part.id for part in _parts(step, request))


def _parts(step: Step, request: RequestRecord) -> list[SessionRecord]:
    """The sessions that a request resumes."""
    return step.state.session_parts(step.state.sessions[request.session_id]) if request.session_id else []


def session_obstacle(step: Step, request: RequestRecord) -> Decision | None:
    """Why a session cannot go on now, whatever room there is."""
    parts = _parts(step, request)
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
            return Decision(Outcome.QUEUE, "full", said, wants=request.wants, evict=(session.id,))
    for session in parts:
        if session.state == "lost":
            return Decision(Outcome.QUEUE, "no-node", say("node-silent", node=param.node(session.node)))
    return None
