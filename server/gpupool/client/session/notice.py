"""A lease that the pool takes back for others: what becomes of its holder's session before and after its end.

Parts of the state machine in :mod:`gpupool.client.session.state`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gpupool.client.reasons import COMES_BACK
from gpupool.client.session.events import (
    AskAgain,
    HandOver,
    Instruction,
    LastMoments,
    LeaseEnded,
    NoticeTold,
    Publish,
)
from gpupool.client.session.record import Asking, Session, State
from gpupool.client.types import LeaseRequest, QueuePlace

Step = tuple[Session, tuple[Instruction, ...]]


def as_used(session: Session) -> Session:
    """Whatever warned of idleness is over."""
    return replace(session, state=State.ATTACHED, countdown=None)


def notice_told(session: Session, event: NoticeTold) -> Step:
    """A notice was given, has changed or was withdrawn; one of another lease is ignored."""
    if session.lease is None or session.lease.lease_id != event.lease_id:
        return session, ()
    notice = event.notice
    if notice is None:
        if session.notice is None:
            return session, ()
        kept = replace(as_used(session), notice=None, resting=False, reason=None)
        return replace(kept, message="The GPU is not taken back after all."), (Publish(),)
    first = session.notice is None
    warned = replace(
        session,
        state=State.WARNED,
        notice=notice,
        countdown=math.ceil(notice.seconds_left),
        reason=notice.reason,
        message=notice.explanation,
    )
    # As with idleness: one event at the start, the seconds in between are read.
    return warned, (Publish(),) if first else ()


def last_moments(session: Session, event: LastMoments) -> Step:
    """The time of a notice is nearly over: a session that comes back hands its GPU over by itself."""
    lease, notice = session.lease, session.notice
    if lease is None or lease.lease_id != event.lease_id or notice is None or session.resting:
        return session, ()
    if not session.returns or notice.reason not in COMES_BACK:
        return session, ()  # whoever gives up may use it to the end
    return replace(session, resting=True), (Publish(), HandOver(lease.lease_id, notice))


def returns(session: Session, event: LeaseEnded) -> Step:
    """Who held it holds it again as soon as it is its turn; calls wait meanwhile."""
    assert session.request is not None
    assert session.lease is not None
    request = replace(
        with_what_is_left(session.request, event.held_seconds),
        session_id=session.session_id or "",
        idempotency_key=f"{session.lease.lease_id}-again",
    )
    waiting = replace(
        session,
        state=State.QUEUED,
        lease=None,
        asking=Asking(request, None, session.by or "magic", hold=False, again=True),
        queue=QueuePlace(0, "It was taken back just now.", None),
        countdown=None,
        reason=event.reason,
        message=session.words.taken_back(event.reason),
        notice=None,
        resting=False,
    )
    return waiting, (Publish(), AskAgain(request))


def with_what_is_left(request: LeaseRequest, used_seconds: float) -> LeaseRequest:
    """The same request, for the rest of the time that it asked for."""
    if not request.duration_seconds:
        return request
    return replace(request, duration_seconds=max(1.0, request.duration_seconds - used_seconds))
