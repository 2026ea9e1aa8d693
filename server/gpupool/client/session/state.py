"""What happens to the GPU session of one holder: a pure state machine.

Events go in, a new state and instructions come out; no clock, no socket, no file. The shell
around it (:mod:`gpupool.client.session.shell`) carries the instructions out and feeds back what
came of them, so every order of events can be tested without a pool.

A lease is kept while somebody holds it. Its holders are the *hold* (the Attach button, ``%gpu
attach``, ``gpupool run``) and the *scopes*: one for each ``%%gpu`` cell and ``with`` block that runs. They may
overlap, so scopes are a set, not a flag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpupool.client.granted_size import exceeds, fits, is_larger
from gpupool.client.reasons import COMES_BACK
from gpupool.client.session.events import (
    AttachWanted,
    CancelRequest,
    CloseSession,
    DetachWanted,
    Event,
    Granted,
    HolderEnded,
    Instruction,
    LastMoments,
    LeaseEnded,
    LeaseRenewed,
    NoticeTold,
    Publish,
    Queued,
    Refused,
    Reject,
    ReleaseLease,
    RequestCancelled,
    RequestLease,
    ResetWanted,
    Resized,
    ResizeLease,
    ResizeRefused,
    ResizeWanted,
    ScopeLeft,
    SessionEnded,
    Used,
    Warned,
)
from gpupool.client.session.notice import as_used, last_moments, notice_told, returns
from gpupool.client.session.record import HOLDING as HOLDING
from gpupool.client.session.record import Asking, Hold
from gpupool.client.session.record import Session as Session
from gpupool.client.session.record import State as State
from gpupool.client.session.reset import as_reset, reset_wanted
from gpupool.client.types import LeaseRequest

Step = tuple[Session, tuple[Instruction, ...]]


def step(session: Session, event: Event) -> Step:
    """One event; the new session and what must be done now, in this order."""
    if session.state is State.CLOSED:
        return _closed(session, event)
    return _HANDLERS[type(event)](session, event)


def _closed(session: Session, event: Event) -> Step:
    """A process that ended holds nothing, however late an answer comes."""
    if isinstance(event, Granted | Resized):
        return session, (
            ReleaseLease(event.grant.lease_id, "exit"),
            CloseSession(event.grant.session_id, "exit"),
        )
    if isinstance(event, AttachWanted | ResizeWanted):
        return session, (Reject("closed", session.words.closed),)
    return session, ()


def _resting(session: Session) -> State:
    """The state without a lease: parked while a session with memory exists."""
    return State.PARKED if session.session_id else State.NONE


def _attach_wanted(session: Session, event: AttachWanted) -> Step:
    if session.asking is not None:
        return session, (Reject("pending", session.words.pending),)
    if event.request.strict and session.session_id and not session.strict:
        return session, (Reject("not-strict", session.words.not_strict),)
    asking = Asking(event.request, event.scope, event.by, event.hold)
    lease = session.lease
    if lease is None:
        request = replace(event.request, session_id=session.session_id or "")
        return replace(session, asking=replace(asking, request=request)), (RequestLease(request),)
    if event.request.count != len(lease.shares) and event.request.count != 1:
        message = session.words.another_count(len(lease.shares), event.request.count)
        return session, (Reject("in-use", message),)
    if fits(event.request.share, lease):
        used = session if session.notice is not None else as_used(session)
        return _with_holder(used, asking), (Publish(),)
    asking = replace(asking, resize=True)
    return replace(session, asking=asking), (ResizeLease(lease.lease_id, event.request.share),)


def _resize_wanted(session: Session, event: ResizeWanted) -> Step:
    if session.asking is not None:
        return session, (Reject("pending", session.words.pending),)
    if session.lease is None:
        return session, (Reject("not-attached", session.words.not_attached),)
    hold = session.hold
    by = hold.by if hold is not None else "magic"
    asking = Asking(LeaseRequest(event.share), None, by, hold=hold is not None, resize=True)
    return replace(session, asking=asking), (ResizeLease(session.lease.lease_id, event.share),)


def _with_holder(session: Session, asking: Asking) -> Session:
    if asking.scope is not None:
        session = replace(session, scopes=session.scopes | {asking.scope})
    if asking.hold:
        share, held = asking.request.share, session.hold
        if held is not None and not asking.resize and is_larger(held.share, share):
            # An attach that runs once more takes nothing of a share that was resized meanwhile.
            share = held.share
        # What was said when an earlier hold was dropped is over. That the share is taken back is not.
        message = session.message if session.notice is not None else None
        session = replace(session, hold=Hold(asking.by, share), message=message)
    return session


def _queued(session: Session, event: Queued) -> Step:
    if session.asking is None or session.lease is not None:
        return session, ()
    # Of a lease that was taken back it stays said why.
    reason = session.reason if session.asking.again else None
    waiting = replace(
        session, state=State.QUEUED, queue=event.place, reason=reason, message=event.place.reason
    )
    return waiting, (Publish(),) if waiting != session else ()


def _granted(session: Session, event: Granted) -> Step:
    if session.asking is None:
        # The answer crossed a cancellation: nobody wants it any more.
        return session, (ReleaseLease(event.grant.lease_id, "release"),)
    if session.returning and event.grant.new_session:
        # As below: another session is no way to go on for what waits with memory on the device.
        lost = replace(_lost(session), asking=None, queue=None)
        gone = (
            ReleaseLease(event.grant.lease_id, "exit"),
            CloseSession(event.grant.session_id, "exit"),
        )
        return lost, (Publish(), *gone)
    message = None
    fresh = event.grant.new_session or not session.session_id
    if event.grant.new_session and session.session_id:
        message = session.words.state_lost
    attached = replace(
        _with_holder(session, session.asking),
        state=State.ATTACHED,
        session_id=event.grant.session_id,
        strict=session.asking.request.strict if fresh else session.strict,
        lease=event.grant,
        size_unsure=False,
        request=session.asking.request,
        asking=None,
        queue=None,
        countdown=None,
        reason=None,
        message=message,
        notice=None,
        resting=False,
    )
    return _settled(attached)


def _refused(session: Session, event: Refused) -> Step:
    asking = session.asking
    if asking is None or asking.resize:
        return session, ()
    if event.reason == "unknown-session" and asking.again:
        # What the program has on the device is gone: another session is no way to go on for it.
        return replace(_lost(session), asking=None, queue=None), (Publish(),)
    if event.reason == "unknown-session" and asking.request.session_id:
        # The pool forgot the parked session; a new one can still be had.
        request = replace(
            asking.request, session_id="", idempotency_key=asking.request.idempotency_key + "-new"
        )
        return replace(session, asking=replace(asking, request=request)), (RequestLease(request),)
    rest = replace(
        _without_holders(session) if asking.again else session,
        state=_resting(session),
        asking=None,
        queue=None,
        reason=event.reason,
        message=event.explanation,
    )
    return rest, (Publish(),)


def _lost(session: Session) -> Session:
    lost = replace(_without_holders(session), state=State.LOST, session_id=None)
    return replace(lost, reason="lost", message=session.words.gone("lost"))


def _without_holders(session: Session) -> Session:
    return replace(session, hold=None, scopes=frozenset())


def _resized(session: Session, event: Resized) -> Step:
    asking = session.asking
    if session.lease is None or session.lease.lease_id != event.grant.lease_id:
        # The lease ended while its size was being changed; the pool knows already.
        return session, ()
    grown = replace(
        session, lease=event.grant, size_unsure=False, asking=None, state=State.ATTACHED, countdown=None
    )
    if session.notice is not None:
        grown = replace(grown, state=session.state, countdown=session.countdown)
    if asking is not None and grown.request is not None:
        grown = replace(grown, request=replace(grown.request, share=asking.request.share))
    if asking is not None:
        grown = _with_holder(grown, asking)
    return _size_settled(grown, asking)


def _resize_refused(session: Session, event: ResizeRefused) -> Step:
    if session.lease is None or session.lease.lease_id != event.lease_id:
        return session, ()
    unsure = session.size_unsure or event.unanswered
    refused = replace(session, asking=None, size_unsure=unsure)
    if event.unanswered:
        # Asking at once would not be answered either: when the lease has been renewed.
        return _settled(refused)
    return _size_settled(refused, session.asking)


def _size_settled(session: Session, asked: Asking | None) -> Step:
    """After an answer about the size: whoever asked for it may have left meanwhile."""
    if session.held and not (asked is not None and asked.gives_back):
        return _shrink_to_hold(session)
    # What was just asked to become smaller and did not has memory in use: the next cell's end asks again.
    return _settled(session)


def _lease_renewed(session: Session, event: LeaseRenewed) -> Step:
    lease = session.lease
    if lease is None or lease.lease_id != event.lease_id or not session.size_unsure:
        return session, ()
    return _shrink_to_hold(session)


def _request_cancelled(session: Session, _event: RequestCancelled) -> Step:
    if session.asking is None:
        return session, ()
    if session.lease is not None:
        # A change of size cannot be called back; its answer settles it, and makes nobody a holder.
        return replace(session, asking=replace(session.asking, scope=None, hold=False)), ()
    rest = replace(session, state=_resting(session), asking=None, queue=None, reason=None, message=None)
    if session.returning:
        rest = _without_holders(rest)
    return rest, (CancelRequest(), Publish())


def _scope_left(session: Session, event: ScopeLeft) -> Step:
    asking = session.asking
    if asking is not None and asking.scope == event.scope:
        # It gave up before the answer came; the answer must not make it a holder.
        session = replace(session, asking=replace(asking, scope=None))
    if event.scope not in session.scopes:
        return session, ()
    left = replace(session, scopes=session.scopes - {event.scope})
    if left.returning and not left.held:
        # The cell that waited for its share has given up.
        return _request_cancelled(left, RequestCancelled())
    if left.held or left.asking is not None:
        # With a request under way its answer decides: another cell may be about to join.
        return _shrink_to_hold(left)
    return _release(left, "exit")


def _settled(session: Session) -> Step:
    """After an answer of the pool: the lease stays only if somebody holds it."""
    if session.lease is None or session.held:
        return session, (Publish(),)
    return _release(session, "exit")


def _shrink_to_hold(session: Session) -> Step:
    """A cell had asked for more than the hold; when the last one ends, the rest goes back."""
    lease, hold = session.lease, session.hold
    if lease is None or hold is None or session.scopes or session.asking:
        return session, (Publish(),)
    if not (session.size_unsure or exceeds(lease, hold.share)):
        return session, (Publish(),)
    asking = Asking(LeaseRequest(hold.share), None, hold.by, hold=False, resize=True, gives_back=True)
    smaller = ResizeLease(lease.lease_id, hold.share, gives_back=True)
    # Published first: whoever looks meanwhile sees that the cell has ended.
    return replace(session, asking=asking), (Publish(), smaller)


def _detach_wanted(session: Session, event: DetachWanted) -> Step:
    if session.asking is not None and session.lease is None:
        return _request_cancelled(session, RequestCancelled())
    if session.lease is None:
        return session, ()
    dropped = replace(session, hold=None, scopes=frozenset() if event.force else session.scopes)
    if dropped.scopes:
        message = "Running code still uses the GPU; it goes back when that code ends."
        # Nor does the answer to a change of size bring the hold back.
        asking = replace(dropped.asking, hold=False) if dropped.asking is not None else None
        return replace(dropped, asking=asking, message=message), (Publish(),)
    return _release(replace(dropped, asking=None), event.reason)


def _release(session: Session, reason: str) -> Step:
    assert session.lease is not None
    parked = replace(
        session,
        state=State.PARKED,
        lease=None,
        hold=None,
        scopes=frozenset(),
        countdown=None,
        reason=reason,
        message=session.words.ended(reason),
        notice=None,
        resting=False,
    )
    # Published first: a thread whose call the worker refuses must not read the old lease again.
    return parked, (Publish(), ReleaseLease(session.lease.lease_id, reason))


def _warned(session: Session, event: Warned) -> Step:
    if session.state not in HOLDING or session.scopes or session.notice is not None:
        return session, ()
    warned = replace(session, state=State.WARNED, countdown=event.countdown, reason="idle")
    # One event at the start of the countdown; the seconds in between are read, not pushed.
    return warned, (Publish(),) if session.state is not State.WARNED else ()


def _used(session: Session, _event: Used) -> Step:
    if session.state is not State.WARNED or session.notice is not None:
        return session, ()
    return replace(as_used(session), reason=None), (Publish(),)


def _lease_ended(session: Session, event: LeaseEnded) -> Step:
    if session.lease is None or session.lease.lease_id != event.lease_id:
        return session, ()
    if event.reason == "reset" and not event.session_alive:
        return as_reset(session), (Publish(),)
    comes_back = event.session_alive and event.reason in COMES_BACK
    if comes_back and session.held and session.returns:
        return returns(session, event)
    ended = replace(
        _without_holders(session),
        state=State.PARKED if event.session_alive else State.LOST,
        lease=None,
        asking=None,
        countdown=None,
        reason=event.reason,
        message=session.words.ended(event.reason, event.detail),
        notice=None,
        resting=False,
    )
    if not event.session_alive:
        ended = replace(ended, session_id=None, message=session.words.gone(event.reason))
    return ended, (Publish(),)


def _session_ended(session: Session, event: SessionEnded) -> Step:
    if session.session_id != event.session_id or session.lease is not None:
        return session, ()
    if event.reason == "reset" and session.asking is None:
        return as_reset(session), (Publish(),)
    # Where nobody says why, it is gone: that is no word about anybody.
    reason = event.reason or "lost"
    gone = replace(
        session,
        state=State.LOST if session.state is not State.QUEUED else session.state,
        session_id=None,
        reason=reason,
        message=session.words.gone(reason),
    )
    return gone, (Publish(),)


def _holder_ended(session: Session, event: HolderEnded) -> Step:
    instructions: list[Instruction] = []
    if session.asking is not None and session.lease is None:
        instructions.append(CancelRequest())
    if session.lease is not None:
        instructions.append(ReleaseLease(session.lease.lease_id, event.reason))
    if session.session_id is not None:
        instructions.append(CloseSession(session.session_id, event.reason))
    closed = Session(
        state=State.CLOSED, session_id=session.session_id, reason=event.reason, words=session.words
    )
    return closed, (Publish(), *instructions)


_HANDLERS: dict[type, Callable[..., Step]] = {
    AttachWanted: _attach_wanted,
    ResizeWanted: _resize_wanted,
    Queued: _queued,
    Granted: _granted,
    Refused: _refused,
    Resized: _resized,
    ResizeRefused: _resize_refused,
    LeaseRenewed: _lease_renewed,
    RequestCancelled: _request_cancelled,
    ScopeLeft: _scope_left,
    DetachWanted: _detach_wanted,
    Warned: _warned,
    Used: _used,
    NoticeTold: notice_told,
    LastMoments: last_moments,
    LeaseEnded: _lease_ended,
    SessionEnded: _session_ended,
    ResetWanted: reset_wanted,
    HolderEnded: _holder_ended,
}
