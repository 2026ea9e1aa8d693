"""Whatever happens in whatever order, a holder's session leaks no lease and tells no lie.

A small pool plays along: it grants, refuses and ends leases, and knows which it has given.
"""

from __future__ import annotations

from gpupool.client.session import events as events
from gpupool.client.session.state import HOLDING, Session, State, step
from gpupool.client.types import Grant, GrantedShare, LeaseRequest, Notice, QueuePlace
from gpupool.sentences.reasons import REASONS
from gpupool.shares import Share
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

SCOPES = st.sampled_from(["a", "b", "c"])
MILLI = st.integers(1, 1000)


class SessionWithPool(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        self.live: dict[str, Grant] = {}
        self.sessions: set[str] = set()
        self.asked: LeaseRequest | None = None
        self.resizing: events.ResizeLease | None = None
        #: The lease that is larger than its hold because its memory is in use.
        self.full = ""
        #: Somebody has asked for a hold since it was given up last.
        self.hold_wanted = False
        self.number = 0
        self.ended = False

    def feed(self, event: events.Event) -> None:
        self.session, instructions = step(self.session, event)
        if isinstance(event, events.AttachWanted) and event.hold:
            rejected = any(isinstance(instruction, events.Reject) for instruction in instructions)
            self.hold_wanted = self.hold_wanted or not rejected
        for instruction in instructions:
            match instruction:
                case events.RequestLease(request) | events.AskAgain(request):
                    assert self.asked is None, "two requests at once"
                    self.asked = request
                case events.CancelRequest():
                    self.asked = None
                case events.ResizeLease(lease_id):
                    assert self.resizing is None or self.resizing.lease_id != lease_id, "two changes at once"
                    self.resizing = instruction
                case events.ReleaseLease(lease_id, reason):
                    assert reason in REASONS
                    self.live.pop(lease_id, None)
                case events.CloseSession(session_id, reason):
                    assert reason in REASONS
                    self.sessions.discard(session_id)
                    for lease_id in [id for id, grant in self.live.items() if grant.session_id == session_id]:
                        del self.live[lease_id]
                case _:
                    pass

    # --- people and cells ---------------------------------------------------------------

    @rule(scope=SCOPES, milli=MILLI, hold=st.booleans())
    def cell_starts(self, scope: str, milli: int, hold: bool) -> None:
        self.feed(events.AttachWanted(LeaseRequest(Share(milli)), by="magic", scope=scope, hold=hold))

    @rule(milli=MILLI)
    def button(self, milli: int) -> None:
        self.feed(events.AttachWanted(LeaseRequest(Share(milli)), by="sidebar", hold=True))

    @precondition(lambda self: self.session.lease is not None)
    @rule(more=MILLI)
    def button_for_more(self, more: int) -> None:
        assert self.session.lease is not None
        [share] = self.session.lease.shares
        self.button(min(share.milli + more, 1000))

    @precondition(lambda self: self.resizing is not None)
    @rule(interrupt=st.booleans())
    def gives_up_while_the_size_changes(self, interrupt: bool) -> None:
        if interrupt:
            self.gives_up_waiting()
        else:
            self.detach(force=False)

    @rule(scope=SCOPES)
    def cell_ends(self, scope: str) -> None:
        self.feed(events.ScopeLeft(scope))
        assert scope not in self.session.scopes

    @rule(force=st.booleans())
    def detach(self, force: bool) -> None:
        self.feed(events.DetachWanted("release", force))
        # Where it waits for a lease that was taken back, it leaves the queue with all its holders.
        self.hold_wanted = False

    @rule(milli=MILLI)
    def resize(self, milli: int) -> None:
        self.feed(events.ResizeWanted(Share(milli)))

    @rule()
    def gives_up_waiting(self) -> None:
        self.feed(events.RequestCancelled())
        self.hold_wanted = self.session.hold is not None

    @rule(seconds=st.integers(1, 60))
    def warned(self, seconds: int) -> None:
        self.feed(events.Warned(seconds))

    @rule()
    def used(self) -> None:
        self.feed(events.Used())

    @precondition(lambda self: self.session.state is State.WARNED and self.session.notice is None)
    @rule()
    def idle_release(self) -> None:
        self.feed(events.DetachWanted("idle"))
        assert self.session.state is State.PARKED

    @rule()
    def reset(self) -> None:
        """Whatever it does, and however often."""
        before, ended = self.session, self.session.session_id
        self.feed(events.ResetWanted())
        if before.state is not State.CLOSED:
            assert self.session.session_id is None
            assert ended is None or (self.session.state, self.session.reason) == (State.NONE, "reset")
            assert ended not in self.sessions
            assert self.asked is None

    @precondition(lambda self: self.session.session_id is not None and not self.ended)
    @rule()
    def the_client_ends_the_session(self) -> None:
        """A second interrupt: the worker ends, and the pool says why."""
        session_id = self.session.session_id
        assert session_id is not None
        self.sessions.discard(session_id)
        if self.session.lease is not None:
            lease_id = self.session.lease.lease_id
            del self.live[lease_id]
            self.feed(events.LeaseEnded(lease_id, "reset", session_alive=False))
            assert (self.session.state, self.session.reason) == (State.NONE, "reset")
        else:
            self.feed(events.SessionEnded(session_id, lost=False, reason="reset"))
        assert self.session.session_id is None

    @rule()
    def process_ends(self) -> None:
        self.feed(events.HolderEnded())
        self.ended = True

    # --- the pool -----------------------------------------------------------------------

    @precondition(lambda self: self.asked is not None)
    @rule(place=st.integers(1, 3))
    def queued(self, place: int) -> None:
        self.feed(events.Queued(QueuePlace(place, "full", None)))

    @precondition(lambda self: self.asked is not None)
    @rule(forgotten=st.booleans())
    def granted(self, forgotten: bool) -> None:
        """``forgotten``: the session that was asked for is gone, and another one begins in its place."""
        request, self.asked = self.asked, None
        assert request is not None
        self.number += 1
        new = forgotten or not request.session_id
        if forgotten:
            self.sessions.discard(request.session_id)
        session_id = f"{self.number:x}" if new else request.session_id
        self.sessions.add(session_id)
        grant = self.grant(f"l{self.number}", session_id, request.share, new=new)
        self.live[grant.lease_id] = grant
        self.feed(events.Granted(grant))

    def grant(self, lease_id: str, session_id: str, share: Share, *, new: bool) -> Grant:
        milli = share.milli or 1
        shares = (GrantedShare("node1/0", milli, 8 * milli),)
        return Grant(lease_id, session_id, self.number, shares, "h:1", "ab" * 32, False, "", new)

    @precondition(lambda self: self.asked is not None)
    @rule(reason=st.sampled_from(["full", "quota", "pool-down", "unknown-session"]))
    def refused(self, reason: str) -> None:
        request, self.asked = self.asked, None
        assert request is not None
        if reason == "unknown-session":
            self.sessions.discard(request.session_id)
        self.feed(events.Refused(reason, "no"))

    @precondition(lambda self: self.resizing is not None)
    @rule(fits=st.booleans(), answered=st.booleans())
    def resize_answered(self, fits: bool, answered: bool) -> None:
        """``answered`` False: the pool went away, before it did it or after."""
        assert self.resizing is not None
        change, self.resizing = self.resizing, None
        before = self.live.get(change.lease_id)
        if before is not None and fits:
            after = self.grant(change.lease_id, before.session_id, change.share, new=False)
            self.live[change.lease_id] = after
            if answered:
                self.full = ""
                self.feed(events.Resized(after))
                return
        elif answered and change.gives_back:
            self.full = change.lease_id
        self.feed(events.ResizeRefused(change.lease_id, unanswered=not answered))

    @precondition(lambda self: self.live)
    @rule()
    def renewed(self) -> None:
        self.feed(events.LeaseRenewed(next(iter(self.live))))
        assert not self.session.size_unsure or self.session.scopes or self.session.asking

    @precondition(lambda self: self.live)
    @rule(seconds=st.one_of(st.none(), st.integers(0, 30)))
    def notice(self, seconds: int | None) -> None:
        notice = None if seconds is None else Notice("reclaim", seconds, "Project b needs it.")
        self.feed(events.NoticeTold(next(iter(self.live)), notice))

    @precondition(lambda self: self.live)
    @rule()
    def last_moments(self) -> None:
        self.feed(events.LastMoments(next(iter(self.live))))

    @precondition(lambda self: self.live)
    @rule(
        reason=st.sampled_from(
            ["reclaim", "preempt", "consolidate", "deadline", "budget", "drain", "admin", "lost", "stopped"]
        ),
        alive=st.booleans(),
        held=st.floats(0.0, 1e6),
    )
    def lease_ends(self, reason: str, alive: bool, held: float) -> None:
        lease_id, grant = self.live.popitem()
        if not alive:
            self.sessions.discard(grant.session_id)
        self.feed(events.LeaseEnded(lease_id, reason, alive, held_seconds=held))

    # --- what always holds -----------------------------------------------------------------

    @invariant()
    def the_pool_and_the_session_agree_on_the_lease(self) -> None:
        known = {self.session.lease.lease_id} if self.session.lease is not None else set()
        assert set(self.live) == known, "a lease nobody knows is a leak, one the pool ended is a lie"

    @invariant()
    def the_state_says_what_is(self) -> None:
        session = self.session
        assert (session.state in HOLDING) == (session.lease is not None)
        assert session.lease is None or session.session_id == session.lease.session_id
        assert session.held or session.lease is None or session.asking is not None, "held by nobody"
        assert not session.held or session.lease is not None or session.returning, "holders without a lease"
        assert not session.returning or (session.held and session.state is State.QUEUED), (
            "asked for by nobody"
        )
        assert session.notice is None or session.state is State.WARNED
        assert not session.resting or session.notice is not None
        assert (session.countdown is None) == (session.state is not State.WARNED)
        assert session.state is not State.QUEUED or session.asking is not None
        assert session.state is not State.PARKED or session.session_id is not None

    @invariant()
    def a_hold_that_was_given_up_does_not_come_back(self) -> None:
        assert self.session.hold is None or self.hold_wanted

    @invariant()
    def what_a_cell_had_beyond_the_hold_goes_back(self) -> None:
        session = self.session
        if session.lease is None or session.hold is None or session.scopes or session.asking is not None:
            return
        if not session.size_unsure and self.full != session.lease.lease_id:
            [share] = self.live[session.lease.lease_id].shares
            assert share.milli <= (session.hold.share.milli or 0)

    @invariant()
    def after_its_end_the_process_has_nothing(self) -> None:
        if self.ended:
            assert self.session.state is State.CLOSED
            assert not self.live
            assert not self.sessions


TestSessionWithPool = SessionWithPool.TestCase
TestSessionWithPool.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
