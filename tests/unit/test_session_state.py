"""The state machine of a holder's GPU session, one rule per test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.client.session.events import (
    AskAgain,
    AttachWanted,
    CancelRequest,
    CloseSession,
    DetachWanted,
    Event,
    Granted,
    HandOver,
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
    Resized,
    ResizeLease,
    ResizeRefused,
    ResizeWanted,
    ScopeLeft,
    SessionEnded,
    Used,
    Warned,
)
from gpupool.client.session.files import SessionFiles
from gpupool.client.session.state import Session, State, step
from gpupool.client.session.words import PROGRAM_WORDS
from gpupool.client.types import Grant, GrantedShare, LeaseRequest, Notice, QueuePlace
from gpupool.shares import Share

#: What a cell had beyond a hold of 0.2.
GIVES_BACK = ResizeLease("l1", Share(200), gives_back=True)


def grant(lease_id: str = "l1", milli: int = 200, session_id: str = "5e", new: bool = True) -> Grant:
    return Grant(
        lease_id,
        session_id,
        1,
        (GrantedShare("node1/0", milli, 8 * milli),),
        "h:1",
        "ab" * 32,
        False,
        "",
        new,
    )


def play(*events: Event, start: Session | None = None) -> tuple[Session, list[Instruction]]:
    """The session after all events, and what the last one asked for."""
    session, instructions = start or Session(), ()
    for event in events:
        session, instructions = step(session, event)
    return session, list(instructions)


def cell(scope: str = "c1", milli: int = 200) -> AttachWanted:
    return AttachWanted(LeaseRequest(Share(milli), idempotency_key="k"), by="magic", scope=scope)


def button(milli: int = 200) -> AttachWanted:
    return AttachWanted(LeaseRequest(Share(milli), idempotency_key="k"), by="sidebar", hold=True)


def strict(scope: str = "c1") -> AttachWanted:
    return AttachWanted(LeaseRequest(Share(200), idempotency_key="k", strict=True), by="magic", scope=scope)


def test_a_session_is_strict_as_its_first_attach_asked_and_stays_so() -> None:
    session, asked = play(strict())
    assert isinstance(asked[0], RequestLease)
    assert asked[0].request.strict
    session, _ = play(Granted(grant()), ScopeLeft("c1"), start=session)
    assert session.strict
    session, asked = play(cell("c2"), start=session)
    assert [type(i) for i in asked] == [RequestLease]
    session, _ = play(Granted(grant("l2", new=False)), start=session)
    assert session.strict


@pytest.mark.parametrize("parked", [True, False])
def test_a_session_that_began_without_a_cap_gets_none_and_says_so(parked: bool) -> None:
    began = [cell(), Granted(grant())] + ([ScopeLeft("c1")] if parked else [])
    before, _ = play(*began)
    session, asked = play(strict("c2"), start=before)
    assert session == before
    [refusal] = asked
    assert isinstance(refusal, Reject)
    assert refusal.reason == "not-strict"


def test_a_session_that_was_lost_is_followed_by_one_that_is_as_strict_as_asked() -> None:
    def lost(first: AttachWanted, then: AttachWanted) -> Session:
        ended = (Granted(grant()), ScopeLeft("c1"), SessionEnded("5e", lost=True))
        return play(first, *ended, then, Granted(grant("l2", session_id="6f")))[0]

    assert not lost(strict(), cell("c2")).strict
    assert lost(cell(), strict("c2")).strict


def test_a_cell_attaches_and_parks_when_it_ends() -> None:
    session, asked = play(cell())
    assert [type(i) for i in asked] == [RequestLease]
    assert session.state is State.NONE
    session, _ = play(Granted(grant()), start=session)
    assert (session.state, session.by, session.held) == (State.ATTACHED, "magic", True)
    session, done = play(ScopeLeft("c1"), start=session)
    assert (session.state, session.reason, session.held) == (State.PARKED, "exit", False)
    assert done == [Publish(), ReleaseLease("l1", "exit")]


def test_the_next_cell_resumes_the_parked_session() -> None:
    _, asked = play(cell(), Granted(grant()), ScopeLeft("c1"), cell("c2"))
    assert isinstance(asked[0], RequestLease)
    assert asked[0].request.session_id == "5e"


def test_a_parked_session_that_the_pool_forgot_is_replaced_and_said() -> None:
    session, asked = play(
        cell(), Granted(grant()), ScopeLeft("c1"), cell("c2"), Refused("unknown-session", "gone")
    )
    assert isinstance(asked[0], RequestLease)
    assert asked[0].request.session_id == ""
    session, _ = play(Granted(grant("l2", session_id="6f")), start=session)
    assert session.state is State.ATTACHED
    assert session.message == PROGRAM_WORDS.state_lost


def test_a_cell_inside_a_held_share_joins_it_and_leaves_it_attached() -> None:
    session, joined = play(button(), Granted(grant()), cell())
    assert joined == [Publish()]
    session, left = play(ScopeLeft("c1"), start=session)
    assert session.state is State.ATTACHED
    assert session.by == "sidebar"
    assert not any(isinstance(i, ReleaseLease) for i in left)


def test_overlapping_cells_keep_the_lease_until_the_last_ends() -> None:
    session, _ = play(cell("a"), Granted(grant()), cell("b"), ScopeLeft("a"))
    assert session.state is State.ATTACHED
    session, done = play(ScopeLeft("b"), start=session)
    assert ReleaseLease("l1", "exit") in done
    assert session.state is State.PARKED


def test_leaving_twice_is_harmless() -> None:
    session, _ = play(cell(), Granted(grant()), ScopeLeft("c1"))
    assert play(ScopeLeft("c1"), start=session) == (session, [])


def test_a_larger_cell_grows_the_lease_and_its_end_shrinks_it() -> None:
    session, grow = play(button(200), Granted(grant()), cell(milli=500))
    assert grow == [ResizeLease("l1", Share(500))]
    session, _ = play(Resized(grant(milli=500)), start=session)
    assert session.scopes == {"c1"}
    session, shrink = play(ScopeLeft("c1"), start=session)
    assert shrink == [Publish(), GIVES_BACK]
    session, _ = play(Resized(grant(milli=200)), start=session)
    assert session.lease is not None
    assert session.lease.shares[0].milli == 200
    assert (session.hold is not None, session.scopes) == (True, frozenset())


def test_growth_refused_leaves_the_hold_as_it_was() -> None:
    session, _ = play(button(200), Granted(grant()), cell(milli=900), ResizeRefused("l1"))
    assert (session.state, session.scopes, session.asking) == (State.ATTACHED, frozenset(), None)


def test_a_cell_that_gives_up_while_the_lease_grows_gives_the_rest_back() -> None:
    session, _ = play(button(200), Granted(grant()), cell(milli=500), ScopeLeft("c1"))
    session, asked = play(Resized(grant(milli=500)), start=session)
    assert asked == [Publish(), GIVES_BACK]
    session, _ = play(Resized(grant(milli=200)), start=session)
    assert (session.asking, session.held) == (None, True)


def test_a_cell_that_ends_while_another_one_grows_in_vain_gives_the_rest_back() -> None:
    grown = (button(200), Granted(grant()), cell("a", 500), Resized(grant(milli=500)))
    _, asked = play(*grown, cell("b", 900), ScopeLeft("a"), ResizeRefused("l1"))
    assert asked == [Publish(), GIVES_BACK]


def test_memory_in_use_does_not_shrink_and_the_next_cells_end_asks_again() -> None:
    session, _ = play(
        button(200), Granted(grant()), cell("a", 500), Resized(grant(milli=500)), ScopeLeft("a")
    )
    session, asked = play(ResizeRefused("l1"), start=session)
    assert (asked, session.asking) == ([Publish()], None)
    assert play(LeaseRenewed("l1"), start=session)[1] == [], "the worker has said no"
    _, asked = play(cell("b", 100), ScopeLeft("b"), start=session)
    assert asked == [Publish(), GIVES_BACK]


@pytest.mark.parametrize(
    "lost",
    [
        (cell("a", 500), ResizeRefused("l1", unanswered=True)),
        (cell("a", 500), Resized(grant(milli=500)), ScopeLeft("a"), ResizeRefused("l1", unanswered=True)),
    ],
    ids=["growth", "shrinking"],
)
def test_a_size_that_the_pool_did_not_say_is_settled_when_it_renews_the_lease(
    lost: tuple[Event, ...],
) -> None:
    session, asked = play(button(200), Granted(grant()), *lost)
    assert (asked, session.size_unsure) == ([Publish()], True), "it would not answer a second question either"
    assert play(LeaseRenewed("l0"), start=session)[1] == []
    session, asked = play(LeaseRenewed("l1"), start=session)
    assert asked == [Publish(), GIVES_BACK]
    assert play(LeaseRenewed("l1"), start=session)[1] == [Publish()], "one change at a time"
    session, _ = play(Resized(grant(milli=200)), start=session)
    assert (session.size_unsure, session.asking) == (False, None)


def test_a_share_that_was_resized_is_not_made_smaller_by_an_attach_that_runs_once_more() -> None:
    held = (button(200), Granted(grant()), ResizeWanted(Share(500)), Resized(grant(milli=500)))
    session, asked = play(*held, button(200))
    assert asked == [Publish()]
    assert session.hold is not None
    assert session.hold.share == Share(500)
    _, asked = play(cell("a", 300), ScopeLeft("a"), start=session)
    assert asked == [Publish()]


def test_another_number_of_devices_is_refused_with_both_numbers() -> None:
    session, _ = play(button(), Granted(grant()))
    _, answer = play(AttachWanted(LeaseRequest(Share(100), count=2), by="magic", scope="c"), start=session)
    assert isinstance(answer[0], Reject)
    assert "2" in answer[0].message


def test_waiting_shows_the_place_and_the_reason() -> None:
    session, published = play(cell(), Queued(QueuePlace(2, "800 of 1000 are taken.", 30.0)))
    assert (session.state, session.queue and session.queue.place) == (State.QUEUED, 2)
    assert published == [Publish()]
    session, again = play(Queued(QueuePlace(2, "800 of 1000 are taken.", 30.0)), start=session)
    assert again == []


def test_leaving_the_queue_and_a_grant_that_crosses_it() -> None:
    session, left = play(cell(), Queued(QueuePlace(1, "full", None)), RequestCancelled())
    assert (session.state, left) == (State.NONE, [CancelRequest(), Publish()])
    session, back = play(Granted(grant()), start=session)
    assert back == [ReleaseLease("l1", "release")]
    assert session.lease is None


def test_detach_while_waiting_leaves_the_queue() -> None:
    session, left = play(button(), Queued(QueuePlace(1, "full", None)), DetachWanted())
    assert session.state is State.NONE
    assert CancelRequest() in left


def test_a_refusal_is_shown_with_its_reason() -> None:
    session, _ = play(cell(), Refused("quota", "The quota is 600."))
    assert (session.state, session.reason, session.message) == (State.NONE, "quota", "The quota is 600.")


def test_detach_does_not_pull_the_gpu_from_under_a_running_cell() -> None:
    session, kept = play(button(), Granted(grant()), cell(), DetachWanted())
    assert session.state is State.ATTACHED
    assert not any(isinstance(i, ReleaseLease) for i in kept)
    session, done = play(ScopeLeft("c1"), start=session)
    assert ReleaseLease("l1", "exit") in done


@pytest.mark.parametrize("given_up", [DetachWanted(), RequestCancelled()], ids=["detach", "interrupt"])
def test_a_hold_that_is_given_up_while_the_lease_grows_for_it_stays_given_up(given_up: Event) -> None:
    session, grow = play(cell(), Granted(grant()), button(500))
    assert grow == [ResizeLease("l1", Share(500))]
    session, _ = play(given_up, Resized(grant(milli=500)), start=session)
    assert (session.hold, session.scopes) == (None, {"c1"})
    session, done = play(ScopeLeft("c1"), start=session)
    assert ReleaseLease("l1", "exit") in done
    assert session.state is State.PARKED


def test_an_interrupt_of_a_growing_hold_leaves_it_as_it_was() -> None:
    session, _ = play(button(200), Granted(grant()), button(500), RequestCancelled())
    _, asked = play(Resized(grant(milli=500)), start=session)
    assert asked == [Publish(), GIVES_BACK]


def test_what_was_said_of_a_hold_that_was_dropped_is_over_with_the_next_one() -> None:
    session, _ = play(cell(), Granted(grant()), DetachWanted())
    assert session.message
    session, _ = play(button(), ScopeLeft("c1"), start=session)
    assert (session.state, session.held, session.message) == (State.ATTACHED, True, None)


def test_detach_by_force_does() -> None:
    session, done = play(button(), Granted(grant()), cell(), DetachWanted("admin", force=True))
    assert (session.state, session.reason) == (State.PARKED, "admin")
    assert ReleaseLease("l1", "admin") in done


def test_a_warning_counts_down_and_use_ends_it() -> None:
    session, published = play(button(), Granted(grant()), Warned(60))
    assert (session.state, session.countdown, published) == (State.WARNED, 60, [Publish()])
    session, published = play(Warned(59), start=session)
    assert (session.countdown, published) == (59, [])
    session, _ = play(Used(), start=session)
    assert (session.state, session.countdown) == (State.ATTACHED, None)


def test_a_running_cell_is_never_warned() -> None:
    session, _ = play(cell(), Granted(grant()))
    assert play(Warned(60), start=session) == (session, [])


def test_idle_release_parks_and_says_that_memory_is_kept() -> None:
    session, done = play(button(), Granted(grant()), Warned(1), DetachWanted("idle"))
    assert (session.state, session.reason) == (State.PARKED, "idle")
    assert session.message == PROGRAM_WORDS.ended("idle")
    assert ReleaseLease("l1", "idle") in done


@pytest.mark.parametrize("reason", ["deadline", "admin", "release"])
def test_the_pool_ends_the_lease(reason: str) -> None:
    session, done = play(cell(), Granted(grant()), LeaseEnded("l1", reason))
    assert (session.state, session.reason, session.session_id) == (State.PARKED, reason, "5e")
    assert done == [Publish()]
    assert play(ScopeLeft("c1"), start=session) == (session, [])


NOTICE = Notice("reclaim", 30.0, "Project b needs 0.5 GPU that it deserves.")


def test_a_notice_is_shown_and_idleness_says_nothing_meanwhile() -> None:
    session, done = play(button(), Granted(grant()), NoticeTold("l1", NOTICE))
    assert done[-1] == Publish()
    assert (session.state, session.reason, session.countdown) == (State.WARNED, "reclaim", 30)
    assert session.message == NOTICE.explanation
    later, done = play(Warned(5), Used(), NoticeTold("l1", replace(NOTICE, seconds_left=12)), start=session)
    assert (later.state, later.countdown, done) == (State.WARNED, 12, [])
    kept, done = play(NoticeTold("l1", None), start=later)
    assert (kept.state, kept.reason, kept.countdown, done) == (State.ATTACHED, None, None, [Publish()])


def test_shortly_before_the_end_calls_rest_and_the_lease_is_handed_over() -> None:
    session, _ = play(cell(), Granted(grant()), NoticeTold("l1", NOTICE))
    resting, done = play(LastMoments("l1"), start=session)
    assert resting.resting
    assert done == [Publish(), HandOver("l1", NOTICE)]
    assert play(LastMoments("l1"), start=resting) == (resting, [])


@pytest.mark.parametrize("reason", ["reclaim", "preempt", "consolidate", "drain", "lost"])
def test_what_is_taken_back_for_others_is_asked_for_again(reason: str) -> None:
    session, done = play(cell(), Granted(grant()), LeaseEnded("l1", reason))
    assert (session.state, session.reason, session.returning) == (State.QUEUED, reason, True)
    assert done[0] == Publish()
    assert isinstance(done[1], AskAgain)
    assert (done[1].request.session_id, done[1].request.share) == ("5e", Share(200))
    back, done = play(Queued(QueuePlace(2, "full", None)), Granted(grant("l2", new=False)), start=session)
    assert (back.state, back.scopes, back.reason) == (State.ATTACHED, frozenset({"c1"}), None)
    assert play(ScopeLeft("c1"), start=back)[1][-1] == ReleaseLease("l2", "exit")


def test_a_drained_node_gives_notice_and_its_holders_ask_again() -> None:
    notice = replace(NOTICE, reason="drain")
    session, _ = play(button(), Granted(grant()), NoticeTold("l1", notice), LeaseEnded("l1", "drain"))
    assert session.returning


def test_who_has_used_up_what_is_allowed_uses_it_to_the_end_and_does_not_ask_again() -> None:
    notice = Notice("budget", 30.0, "ann has used 70 GPU seconds of 100 GPU seconds")
    session, _ = play(button(), Granted(grant()), NoticeTold("l1", notice))
    assert session.state is State.WARNED
    assert play(LastMoments("l1"), start=session) == (session, [])
    ended, _ = play(LeaseEnded("l1", "budget"), start=session)
    assert (ended.state, ended.reason, ended.returning) == (State.PARKED, "budget", False)
    assert ended.message == PROGRAM_WORDS.ended("budget")


def test_who_does_not_want_to_come_back_uses_it_to_the_end_and_is_parked() -> None:
    session, done = play(
        button(),
        Granted(grant()),
        NoticeTold("l1", NOTICE),
        LastMoments("l1"),
        LeaseEnded("l1", "reclaim"),
        start=Session(returns=False),
    )
    assert (session.state, session.held, session.asking) == (State.PARKED, False, None)
    assert not any(isinstance(instruction, HandOver | AskAgain) for instruction in done)


@pytest.mark.parametrize("ends", [ScopeLeft("c1"), RequestCancelled(), DetachWanted()])
def test_who_waits_for_what_was_taken_back_may_stop(ends: Event) -> None:
    session, _ = play(cell(), Granted(grant()), LeaseEnded("l1", "reclaim"))
    stopped, done = play(ends, start=session)
    assert (stopped.state, stopped.held, stopped.session_id) == (State.PARKED, False, "5e")
    assert done == [CancelRequest(), Publish()]


def test_a_session_that_cannot_come_back_is_lost_and_a_refusal_parks_it() -> None:
    session, _ = play(cell(), Granted(grant()), LeaseEnded("l1", "reclaim"))
    lost, _ = play(Refused("unknown-session", "There is none."), start=session)
    assert (lost.state, lost.held, lost.session_id) == (State.LOST, False, None)
    parked, _ = play(Refused("over-quota", "Project a has 1 GPU."), start=session)
    assert (parked.state, parked.held, parked.session_id) == (State.PARKED, False, "5e")
    assert parked.message == "Project a has 1 GPU."


def test_what_comes_back_without_its_memory_is_lost_and_goes_straight_back() -> None:
    waiting, _ = play(cell(), Granted(grant()), LeaseEnded("l1", "reclaim"))
    lost, done = play(Granted(grant("l2", session_id="6f", new=True)), start=waiting)
    assert (lost.state, lost.held, lost.session_id, lost.lease) == (State.LOST, False, None, None)
    assert done == [Publish(), ReleaseLease("l2", "exit"), CloseSession("6f", "exit")]


@pytest.mark.parametrize(("asked", "held", "left"), [(60.0, 20.0, 40.0), (60.0, 90.0, 1.0), (0.0, 90.0, 0.0)])
def test_what_comes_back_has_what_is_left_of_its_time(asked: float, held: float, left: float) -> None:
    timed = AttachWanted(LeaseRequest(Share(200), duration_seconds=asked), by="magic", scope="c1")
    ended = LeaseEnded("l1", "preempt", held_seconds=held)
    waiting, done = play(timed, Granted(grant()), ended)
    assert isinstance(done[-1], AskAgain)
    assert done[-1].request.duration_seconds == left
    back, _ = play(Granted(grant("l2", new=False)), start=waiting)
    _, again = play(LeaseEnded("l2", "preempt", held_seconds=0.0), start=back)
    assert isinstance(again[-1], AskAgain)
    assert again[-1].request.duration_seconds == left


def test_scopes_grow_the_share_one_by_one_and_the_last_one_shrinks_it_back_to_the_hold() -> None:
    session, _ = play(button(200), Granted(grant(milli=200)))
    for scope, milli in (("a", 400), ("b", 100), ("c", 700)):
        session, asked = play(cell(scope, milli), start=session)
        if asked[0] != Publish():
            assert asked == [ResizeLease("l1", Share(milli))]
            session, _ = play(Resized(grant(milli=milli)), start=session)
    assert session.scopes == {"a", "b", "c"}
    assert session.lease is not None
    assert session.lease.shares[0].milli == 700
    for scope in ("c", "a"):
        session, asked = play(ScopeLeft(scope), start=session)
        assert asked == [Publish()]
    session, asked = play(ScopeLeft("b"), start=session)
    assert asked == [Publish(), GIVES_BACK]
    session, _ = play(Resized(grant(milli=200)), start=session)
    assert (session.state, session.by, session.scopes) == (State.ATTACHED, "sidebar", frozenset())


def test_a_lost_node_takes_the_memory_with_it() -> None:
    session, _ = play(cell(), Granted(grant()), LeaseEnded("l1", "lost", session_alive=False))
    assert (session.state, session.session_id) == (State.LOST, None)
    _, asked = play(cell("c2"), start=session)
    assert isinstance(asked[0], RequestLease)
    assert asked[0].request.session_id == ""


def test_the_end_of_an_earlier_lease_is_ignored() -> None:
    session, _ = play(
        cell(), Granted(grant("l1")), ScopeLeft("c1"), cell("c2"), Granted(grant("l2", new=False))
    )
    assert play(LeaseEnded("l1", "lost"), start=session) == (session, [])


def test_a_parked_session_that_dies_is_lost() -> None:
    session, _ = play(cell(), Granted(grant()), ScopeLeft("c1"), SessionEnded("5e", lost=True))
    assert (session.state, session.session_id) == (State.LOST, None)


@pytest.mark.parametrize(("said", "reason"), [("", "lost"), ("admin", "admin"), ("release", "release")])
def test_no_administrator_is_named_unless_one_ended_it(said: str, reason: str) -> None:
    ended = SessionEnded("5e", lost=False, reason=said)
    session, _ = play(cell(), Granted(grant()), ScopeLeft("c1"), ended)
    assert (session.state, session.reason) == (State.LOST, reason)


def test_resize_needs_a_lease() -> None:
    _, answer = play(ResizeWanted(Share(300)))
    assert isinstance(answer[0], Reject)
    assert answer[0].reason == "not-attached"


def test_resize_of_a_hold_is_remembered() -> None:
    session, asked = play(button(), Granted(grant()), ResizeWanted(Share(300)))
    assert asked == [ResizeLease("l1", Share(300))]
    session, _ = play(Resized(grant(milli=300)), start=session)
    assert session.hold is not None
    assert (session.hold.by, session.hold.share) == ("sidebar", Share(300))


def test_the_end_of_the_process_gives_everything_back() -> None:
    session, done = play(button(), Granted(grant()), HolderEnded())
    assert session.state is State.CLOSED
    assert done == [Publish(), ReleaseLease("l1", "exit"), CloseSession("5e", "exit")]
    assert play(cell(), start=session)[1][0] == Reject("closed", PROGRAM_WORDS.closed)


def test_a_grant_after_the_end_of_the_process_goes_straight_back() -> None:
    session, left = play(cell(), Queued(QueuePlace(1, "full", None)), HolderEnded())
    assert CancelRequest() in left
    _, back = play(Granted(grant()), start=session)
    assert back == [ReleaseLease("l1", "exit"), CloseSession("5e", "exit")]


def test_asking_twice_at_once_is_refused() -> None:
    session, _ = play(cell())
    _, answer = play(button(), start=session)
    assert isinstance(answer[0], Reject)
    assert answer[0].reason == "pending"


def test_the_token_is_never_in_a_repr() -> None:
    session, _ = play(cell(), Granted(grant()))
    assert "abab" not in repr(session)
    assert "abab" not in repr(replace(session))


@pytest.mark.parametrize(("asks_later", "said"), [(True, "parked"), (False, "closed")])
def test_who_cannot_ask_again_is_told_that_the_end_of_the_lease_is_the_sessions(
    tmp_path: Path, asks_later: bool, said: str
) -> None:
    files = SessionFiles(tmp_path / "session", asks_later=asks_later)
    session, _ = play(button(), Granted(grant()), LeaseEnded("l1", "deadline"))
    files.write(session)
    assert (session.state, files.session.read().state) == (State.PARKED, said)
    waiting, _ = play(button(), Granted(grant()), LeaseEnded("l1", "reclaim"))
    files.write(waiting)
    assert files.session.read().state == "waiting"


def test_monitors_are_shown_the_share_and_not_the_whole_device_while_the_session_rests(
    tmp_path: Path,
) -> None:
    files = SessionFiles(tmp_path / "session")
    files.keep_profile("a device", software=True)
    attached, _ = play(button(), Granted(grant()))
    files.write(attached)
    share = files.session.read().share
    assert share
    for reason in ("deadline", "reclaim"):
        rests, _ = play(LeaseEnded("l1", reason), start=attached)
        files.write(rests)
        assert files.session.read().share == share


def test_a_session_that_goes_on_at_another_worker_is_the_same_one(tmp_path: Path) -> None:
    """The client runtime follows the file: same session, newer epoch, another address."""
    files = SessionFiles(tmp_path / "session")
    session, _ = play(cell(), Granted(grant()))
    files.write(session)
    before = files.session.read()
    session, _ = play(ScopeLeft("c1"), cell("c2"), start=session)
    moved = replace(grant("l2", new=False), epoch=before.epoch + 1, worker_address="10.0.0.9:4711")
    session, _ = play(Granted(moved), start=session)
    files.write(session)
    after = files.session.read()
    assert (session.state, session.message) == (State.ATTACHED, None)
    assert (after.session, after.token) == (before.session, before.token)
    assert (after.epoch, after.address) == (before.epoch + 1, "10.0.0.9:4711")
