"""What happens to the GPU session of one kernel: a pure state machine.

Events go in, a new state and instructions come out; no clock, no socket, no file. The shell
around it (:mod:`jupyter_gpupool.session`) carries the instructions out and feeds back what
came of them, so every order of events can be tested without a pool.

A lease is kept while somebody holds it. Holders are the *hold* (the Attach button, ``%gpu
attach``, ``%%gpu --hold``) and the *scopes*: one for each ``%%gpu`` cell that runs. Cells of
two subshells may overlap, so scopes are a set, not a flag.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gpupool.client.returning import comes_back
from gpupool.client.types import Ask, Grant, Notice, QueuePlace
from gpupool.shares import Share, format_milli

from jupyter_gpupool.session_events import (
    AskAgain,
    AskCancelled,
    AttachWanted,
    CancelRequest,
    CloseSession,
    DetachWanted,
    Event,
    Granted,
    HandOver,
    Instruction,
    KernelEnded,
    LastMoments,
    LeaseEnded,
    NoticeTold,
    Publish,
    Queued,
    Refused,
    Reject,
    ReleaseLease,
    RequestLease,
    Resized,
    ResizeLease,
    ResizeRefused,
    ResizeWanted,
    ScopeLeft,
    SessionEnded,
    Used,
    Warned,
)


class State(StrEnum):
    """States of a session; the words of every API, log, event and screen."""

    NONE = "none"
    QUEUED = "queued"
    ATTACHED = "attached"
    WARNED = "warned"
    PARKED = "parked"
    CLOSED = "closed"
    LOST = "lost"


#: States in which the kernel holds shares of devices.
HOLDING = frozenset({State.ATTACHED, State.WARNED})

#: Why a lease or a session ended.
REASONS = frozenset(
    {"exit", "release", "idle", "deadline", "reclaim", "preempt", "consolidate", "lost", "admin"}
)

#: What to do next; the end of every sentence that says the GPU is gone.
WAY_OUT = "Put %%gpu 0.2 above the cell, or press Attach in the GPU sidebar."

#: Why a second request of a kernel is refused while the first one waits.
PENDING = "This kernel already asks for a GPU."

#: A session is strict from its first attach on, or never.
NOT_STRICT = (
    "The GPU session of this kernel began without --strict, and keeps its way of sharing; restart the kernel "
    "to begin one with a hard cap."
)

#: What the client runtime says when a CUDA call finds nothing attached.
NOT_ATTACHED = f"No GPU is attached. {WAY_OUT}"

_ENDED_SENTENCES = {
    "exit": "",
    "release": "The GPU was detached; what is in its memory is kept.",
    "idle": "The GPU went back to the pool because nothing used it; what is in its memory is kept.",
    "deadline": "The time that was asked for with --for is over; what is in GPU memory is kept.",
    "reclaim": "The pool gave the GPU to a project that is entitled to it; what is in GPU memory is kept.",
    "preempt": "The pool gave the GPU to a request with a higher priority; what is in GPU memory is kept.",
    "consolidate": "The GPU share moves to another place so that another request fits; what is in GPU memory is kept.",
    "lost": "The connection to the GPU was lost.",
    "admin": "An administrator took the GPU back.",
}


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold that outlives cells: who asked (``sidebar`` or ``magic``) and for how much."""

    by: str
    share: Share


@dataclass(frozen=True, slots=True)
class Asking:
    """A request that the pool has not answered yet, and who becomes a holder when it is granted.

    ``again``: for a lease that was taken back for others, with the holders that it had.
    """

    ask: Ask
    scope: str | None
    by: str
    hold: bool
    resize: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """The session of one launch of one kernel. A restarted kernel begins with a new one.

    Attributes:
        strict: its compute share is a hard cap, as its first attach asked.
        ask: what the lease was asked for with.
        notice: the pool will take the lease back; ``resting``: in a moment, so calls wait already.
        returns: whether a lease that is taken back for others is asked for again by itself.
    """

    state: State = State.NONE
    session_id: str | None = None
    strict: bool = False
    lease: Grant | None = field(default=None, repr=False)
    hold: Hold | None = None
    scopes: frozenset[str] = frozenset()
    asking: Asking | None = None
    queue: QueuePlace | None = None
    countdown: int | None = None
    reason: str | None = None
    message: str | None = None
    ask: Ask | None = None
    notice: Notice | None = None
    resting: bool = False
    returns: bool = True

    @property
    def returning(self) -> bool:
        """Its lease was taken back for others, and it waits for another one: calls wait as well."""
        return self.asking is not None and self.asking.again

    @property
    def held(self) -> bool:
        return self.hold is not None or bool(self.scopes)

    @property
    def by(self) -> str | None:
        """Who holds the lease; a running cell counts as ``magic``."""
        if self.hold is not None:
            return self.hold.by
        return "magic" if self.scopes else None


Step = tuple[Session, tuple[Instruction, ...]]


def step(session: Session, event: Event) -> Step:
    """One event; the new session and what must be done now, in this order."""
    if session.state is State.CLOSED:
        return _closed(session, event)
    return _HANDLERS[type(event)](session, event)


def _closed(session: Session, event: Event) -> Step:
    """A kernel that ended holds nothing, however late an answer comes."""
    if isinstance(event, Granted | Resized):
        return session, (
            ReleaseLease(event.grant.lease_id, "exit"),
            CloseSession(event.grant.session_id, "exit"),
        )
    if isinstance(event, AttachWanted | ResizeWanted):
        return session, (Reject("closed", "This kernel has ended."),)
    return session, ()


def _resting(session: Session) -> State:
    """The state without a lease: parked while a session with memory exists."""
    return State.PARKED if session.session_id else State.NONE


def _attach_wanted(session: Session, event: AttachWanted) -> Step:
    if session.asking is not None:
        return session, (Reject("pending", PENDING),)
    if event.ask.strict and session.session_id and not session.strict:
        return session, (Reject("not-strict", NOT_STRICT),)
    asking = Asking(event.ask, event.scope, event.by, event.hold)
    lease = session.lease
    if lease is None:
        ask = replace(event.ask, session_id=session.session_id or "")
        return replace(session, asking=replace(asking, ask=ask)), (RequestLease(ask),)
    if event.ask.count != len(lease.shares) and event.ask.count != 1:
        held = f"a share of {len(lease.shares)} GPU" + ("s" if len(lease.shares) > 1 else "")
        return session, (
            Reject(
                "in-use", f"This kernel already holds {held}; detach it before asking for {event.ask.count}."
            ),
        )
    if fits(event.ask.share, lease):
        used = session if session.notice is not None else _as_used(session)
        return _with_holder(used, asking), (Publish(),)
    asking = replace(asking, resize=True)
    return replace(session, asking=asking), (ResizeLease(lease.lease_id, event.ask.share),)


def _resize_wanted(session: Session, event: ResizeWanted) -> Step:
    if session.asking is not None:
        return session, (Reject("pending", PENDING),)
    if session.lease is None:
        return session, (Reject("not-attached", f"No GPU is attached to this kernel. {WAY_OUT}"),)
    hold = session.hold
    by = hold.by if hold is not None else "magic"
    asking = Asking(Ask(event.share), None, by, hold=hold is not None, resize=True)
    return replace(session, asking=asking), (ResizeLease(session.lease.lease_id, event.share),)


def _with_holder(session: Session, asking: Asking) -> Session:
    if asking.scope is not None:
        session = replace(session, scopes=session.scopes | {asking.scope})
    if asking.hold:
        session = replace(session, hold=Hold(asking.by, asking.ask.share))
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
    message = None
    fresh = event.grant.new_session or not session.session_id
    if event.grant.new_session and session.session_id:
        message = "The GPU state of this kernel was lost; arrays on the GPU must be made again."
    attached = replace(
        _with_holder(session, session.asking),
        state=State.ATTACHED,
        session_id=event.grant.session_id,
        strict=session.asking.ask.strict if fresh else session.strict,
        lease=event.grant,
        ask=session.asking.ask,
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
        lost = replace(_without_holders(session), state=State.LOST, session_id=None, asking=None, queue=None)
        return replace(lost, reason="lost", message=_gone_message("lost")), (Publish(),)
    if event.reason == "unknown-session" and asking.ask.session_id:
        # The pool forgot the parked session; a new one can still be had.
        ask = replace(asking.ask, session_id="", idempotency_key=asking.ask.idempotency_key + "-new")
        return replace(session, asking=replace(asking, ask=ask)), (RequestLease(ask),)
    rest = replace(
        _without_holders(session) if asking.again else session,
        state=_resting(session),
        asking=None,
        queue=None,
        reason=event.reason,
        message=event.explanation,
    )
    return rest, (Publish(),)


def _without_holders(session: Session) -> Session:
    return replace(session, hold=None, scopes=frozenset())


def _resized(session: Session, event: Resized) -> Step:
    asking = session.asking
    if session.lease is None or session.lease.lease_id != event.grant.lease_id:
        # The lease ended while its size was being changed; the pool knows already.
        return session, ()
    grown = replace(session, lease=event.grant, asking=None, state=State.ATTACHED, countdown=None)
    if session.notice is not None:
        grown = replace(grown, state=session.state, countdown=session.countdown)
    if asking is not None and grown.ask is not None:
        grown = replace(grown, ask=replace(grown.ask, share=asking.ask.share))
    if asking is not None:
        grown = _with_holder(grown, asking)
    return _settled(grown)


def _resize_refused(session: Session, event: ResizeRefused) -> Step:
    if session.lease is None or session.lease.lease_id != event.lease_id:
        return session, ()
    return _settled(replace(session, asking=None))


def _ask_cancelled(session: Session, _event: AskCancelled) -> Step:
    if session.asking is None:
        return session, ()
    if session.lease is not None:
        # A change of size cannot be called back; its answer settles it.
        return session, ()
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
        return _ask_cancelled(left, AskCancelled())
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
    if lease is None or hold is None or session.scopes or session.asking or not exceeds(lease, hold.share):
        return session, (Publish(),)
    asking = Asking(Ask(hold.share), None, hold.by, hold=True, resize=True)
    return replace(session, asking=asking), (ResizeLease(lease.lease_id, hold.share), Publish())


def _detach_wanted(session: Session, event: DetachWanted) -> Step:
    if session.asking is not None and session.lease is None:
        return _ask_cancelled(session, AskCancelled())
    if session.lease is None:
        return session, ()
    dropped = replace(session, hold=None, scopes=frozenset() if event.force else session.scopes)
    if dropped.scopes:
        message = "A running cell still uses the GPU; it goes back when the cell ends."
        return replace(dropped, message=message), (Publish(),)
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
        message=_ended_message(reason),
        notice=None,
        resting=False,
    )
    # Published first: a thread whose call the worker refuses must not read the old lease again.
    return parked, (Publish(), ReleaseLease(session.lease.lease_id, reason))


def _ended_message(reason: str, detail: str = "") -> str | None:
    sentence = detail or _ENDED_SENTENCES.get(reason, f"The GPU lease ended ({reason}).")
    return f"{sentence} {WAY_OUT}".strip() if sentence else None


def _gone_message(reason: str) -> str:
    cause = "its worker or node failed" if reason == "lost" else f"its session was ended ({reason})"
    return f"The GPU is gone with what was in its memory: {cause}. Arrays on it must be made again. {WAY_OUT}"


def _warned(session: Session, event: Warned) -> Step:
    if session.state not in HOLDING or session.scopes or session.notice is not None:
        return session, ()
    warned = replace(session, state=State.WARNED, countdown=event.countdown, reason="idle")
    # One event at the start of the countdown; the seconds in between are read, not pushed.
    return warned, (Publish(),) if session.state is not State.WARNED else ()


def _used(session: Session, _event: Used) -> Step:
    if session.state is not State.WARNED or session.notice is not None:
        return session, ()
    return replace(_as_used(session), reason=None), (Publish(),)


def _as_used(session: Session) -> Session:
    return replace(session, state=State.ATTACHED, countdown=None)


def _notice_told(session: Session, event: NoticeTold) -> Step:
    if session.lease is None or session.lease.lease_id != event.lease_id:
        return session, ()
    notice = event.notice
    if notice is None:
        if session.notice is None:
            return session, ()
        kept = replace(_as_used(session), notice=None, resting=False, reason=None)
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


def _last_moments(session: Session, event: LastMoments) -> Step:
    lease, notice = session.lease, session.notice
    if lease is None or lease.lease_id != event.lease_id or notice is None or session.resting:
        return session, ()
    if not session.returns:
        return session, ()  # whoever gives up may use it to the end
    return replace(session, resting=True), (Publish(), HandOver(lease.lease_id, notice))


def _lease_ended(session: Session, event: LeaseEnded) -> Step:
    if session.lease is None or session.lease.lease_id != event.lease_id:
        return session, ()
    noticed = session.notice is not None
    if event.session_alive and session.held and session.returns and comes_back(event.reason, noticed=noticed):
        return _returns(session, event)
    ended = replace(
        _without_holders(session),
        state=State.PARKED if event.session_alive else State.LOST,
        lease=None,
        asking=None,
        countdown=None,
        reason=event.reason,
        message=_ended_message(event.reason, event.detail),
        notice=None,
        resting=False,
    )
    if not event.session_alive:
        ended = replace(ended, session_id=None, message=_gone_message(event.reason))
    return ended, (Publish(),)


def _returns(session: Session, event: LeaseEnded) -> Step:
    """Who held it holds it again as soon as it is its turn; calls wait meanwhile."""
    assert session.ask is not None
    assert session.lease is not None
    ask = replace(
        session.ask,
        session_id=session.session_id or "",
        idempotency_key=f"{session.lease.lease_id}-again",
    )
    waiting = replace(
        session,
        state=State.QUEUED,
        lease=None,
        asking=Asking(ask, None, session.by or "magic", hold=False, again=True),
        queue=QueuePlace(0, "It was taken back just now.", None),
        countdown=None,
        reason=event.reason,
        message=_ENDED_SENTENCES.get(event.reason),
        notice=None,
        resting=False,
    )
    return waiting, (Publish(), AskAgain(ask))


def _session_ended(session: Session, event: SessionEnded) -> Step:
    if session.session_id != event.session_id or session.lease is not None:
        return session, ()
    gone = replace(
        session,
        state=State.LOST if session.state is not State.QUEUED else session.state,
        session_id=None,
        reason="lost" if event.lost else "admin",
        message=_gone_message("lost" if event.lost else "admin"),
    )
    return gone, (Publish(),)


def _kernel_ended(session: Session, event: KernelEnded) -> Step:
    instructions: list[Instruction] = []
    if session.asking is not None and session.lease is None:
        instructions.append(CancelRequest())
    if session.lease is not None:
        instructions.append(ReleaseLease(session.lease.lease_id, event.reason))
    if session.session_id is not None:
        instructions.append(CloseSession(session.session_id, event.reason))
    closed = Session(state=State.CLOSED, session_id=session.session_id, reason=event.reason)
    return closed, (Publish(), *instructions)


def fits(share: Share, lease: Grant) -> bool:
    """Whether ``share`` is no more than what ``lease`` grants on each device."""
    if share.milli is not None:
        return all(share.milli <= granted.milli for granted in lease.shares)
    return all((share.mib or 0) <= granted.mib for granted in lease.shares)


def exceeds(lease: Grant, share: Share) -> bool:
    """Whether ``lease`` grants more than ``share``."""
    if share.milli is not None:
        return any(granted.milli > share.milli for granted in lease.shares)
    return any(granted.mib > (share.mib or 0) for granted in lease.shares)


def describe(lease: Grant) -> str:
    """What a lease grants, for people: ``0.2 GPU (1587 MiB) on node1/0``."""
    first = lease.shares[0]
    many = f"{len(lease.shares)} × " if len(lease.shares) > 1 else ""
    devices = ", ".join(granted.device_id for granted in lease.shares)
    return f"{many}{format_milli(first.milli)} GPU ({first.mib} MiB) on {devices}"


_HANDLERS: dict[type, Callable[..., Step]] = {
    AttachWanted: _attach_wanted,
    ResizeWanted: _resize_wanted,
    Queued: _queued,
    Granted: _granted,
    Refused: _refused,
    Resized: _resized,
    ResizeRefused: _resize_refused,
    AskCancelled: _ask_cancelled,
    ScopeLeft: _scope_left,
    DetachWanted: _detach_wanted,
    Warned: _warned,
    Used: _used,
    NoticeTold: _notice_told,
    LastMoments: _last_moments,
    LeaseEnded: _lease_ended,
    SessionEnded: _session_ended,
    KernelEnded: _kernel_ended,
}
