"""A request arrives, arrives again, or is not waited for any more. What becomes of it in the queue, see `queue_rules`."""

from __future__ import annotations

from gpupool.model import events
from gpupool.model.instructions import TellGranted, TellQueued, TellRefused
from gpupool.model.state import PRIORITIES, LeaseRecord, RequestRecord, key_of
from gpupool.model.state_index import is_owed
from gpupool.pool.model import messages
from gpupool.pool.model.step import Step
from gpupool.pool.projects import project_rules
from gpupool.pool.projects.project_rules import NoProject
from gpupool.pool.queue import queue_rules
from gpupool.records import replace
from gpupool.sentences import NOTHING, Sentence, param, say

#: Sessions that one user may have open, parked or not.
MOST_SESSIONS = 500


def requested(step: Step, event: events.Requested) -> None:
    """A new request, or the same request again: then its caller joins what is there already."""
    state = step.state
    name = key_of(event.user, event.key)
    known = state.leases.get(state.keys.get(name, ""))
    if known is not None:
        _join_lease(step, event, known)
        return
    if name in state.requests:
        request = state.requests[name]
        if request.place:
            step.do(TellQueued(request.user, request.key, request.place, request.said, request.eta))
        return
    problem, count = _problem_with_session(step, event)
    session = state.sessions.get(event.session_id)
    last = session.project if session else ""
    project = project_rules.project_of(state, event.user, event.project, last, event.groups)
    if problem is None and isinstance(project, NoProject):
        problem = (project.reason, project.said)
    if problem is not None or isinstance(project, NoProject):
        refused = TellRefused(event.user, event.key, *(problem or ("", NOTHING)))
        step.do(refused)
        messages.journal_refusal(step, refused, event.session_id)
        return
    queue_rules.follow(step)
    number = step.queue.next_number()
    state.requests[name] = RequestRecord(
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
        project=project,
        kind=event.kind,
        priority=PRIORITIES[event.kind] if event.priority is None else event.priority,
        filters=event.filters,
        pools=event.pools,
        isolated=event.isolated,
    )
    queue_rules.arrived(step, state.requests[name])


def cancelled(step: Step, event: events.Cancelled) -> None:
    """Nobody waits any more. A lease on its way is kept a moment, for a caller that reconnects.

    Until then it is no reservation: nobody knows its id to release it, and deadlines are not stored, so
    after a restart of the pool only this tells it from one that is held on purpose.
    """
    state = step.state
    name = key_of(event.user, event.key)
    if name in state.requests:
        request = state.requests[name]
        del state.requests[name]
        # Behind it in its lane others wait for the same; only what was kept for this one makes a difference.
        few = len(state.requests) <= queue_rules.ALL_TOLD
        step.reschedule = step.reschedule or few or bool(request.wants) or is_owed(request.decision)
        step.queue.untold = True
        queue_rules.follow(step)
        step.journal(
            "cancelled", "the caller left the queue", user=request.user, session_id=request.session_id
        )
        return
    lease = state.leases.get(state.keys.get(name, ""))
    if lease is not None and lease.live:
        soon = step.now + step.timers.claim
        if lease.renew_by is not None:
            soon = min(soon, lease.renew_by)
        state.leases[lease.id] = replace(lease, renew_by=soon, reservation=False)


def _first_part(step: Step, session_id: str) -> str:
    """A gang is named by its first session, whichever of them is asked for."""
    session = step.state.sessions.get(session_id)
    return session_id if session is None else session.gang or session.id


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
        said = say("lease-of-request-ended", lease=param.text(lease.id), reason=param.text(lease.reason))
        step.do(TellRefused(event.user, event.key, "lease-ended", said))
        return
    reservation = lease.reservation or event.reservation
    if lease.state == "attached":
        renew_by = None if reservation else step.now + step.timers.holder
        step.state.leases[lease.id] = replace(lease, renew_by=renew_by, reservation=reservation)
        step.do(TellGranted(event.user, event.key, lease.id))
    else:
        step.state.leases[lease.id] = replace(lease, renew_by=None, reservation=reservation)


def _problem_with_session(step: Step, event: events.Requested) -> tuple[tuple[str, Sentence] | None, int]:
    """((reason, sentence), 0) when the session cannot be resumed, else (None, count of devices)."""
    if not event.session_id:
        problem = None
        if _has_all_sessions(step, event.user):
            said = say("too-many-sessions", user=param.user(event.user), count=param.count(MOST_SESSIONS))
            problem = "too-many-sessions", said
        return problem, event.count or 1
    session = step.state.sessions.get(event.session_id)
    if session is None or session.user != event.user:
        said = say("no-session", session=param.text(event.session_id), user=param.user(event.user))
        return ("unknown-session", said), 0
    if session.state == "closed":
        said = say("session-closed", session=param.text(session.id), reason=param.text(session.reason))
        return ("unknown-session", said), 0
    devices = sum(len(part.device_ids) for part in step.state.session_parts(session))
    return None, event.count or devices


def _has_all_sessions(step: Step, user: str) -> bool:
    """Whether the user has as many sessions as may be open: each of them keeps a process on its node."""
    sessions = step.state.index.sessions_of_user
    if sessions.count(user) < MOST_SESSIONS:
        return False
    return sum(session.state != "closed" for session in sessions.of(user)) >= MOST_SESSIONS
