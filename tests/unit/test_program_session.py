"""The session of a program that asks the pool by itself: the machine of every holder, over a pool in memory."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpupool.client import holder
from gpupool.client.program.session import ProgramSession, Wanted
from gpupool.client.program.view import session_view
from gpupool.client.program.words import COMMAND_WORDS
from gpupool.client.reasons import MOMENTARY, NOT_STARTED
from gpupool.client.session import asking_again, files, shell
from gpupool.client.session.events import Granted, Refused
from gpupool.client.session.shell import AttachRefusedError
from gpupool.client.session.state import State
from gpupool.client.session.words import PROGRAM_WORDS
from gpupool.client.types import Grant, LeaseRequest, Notice, QueuePlace
from gpupool.sentences.reasons import REASONS
from gpupool.shares import Share

from tests.support.memory_pool import MemoryPool

#: Seconds between renewals.
INTERVAL = 0.05


class Program:
    """One session with what its people were told."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.pool = MemoryPool()
        self.said: list[str] = []
        self.places: list[int] = []
        pool: Any = self.pool
        self.session = ProgramSession(
            pool,
            folder,
            holder="program",
            interval=INTERVAL,
            say=self.said.append,
            say_place=lambda place: self.places.append(place.place),
            **options,
        )

    async def attach(self, milli: int, scope: str = "", wait: float | None = 5.0, **more: Any) -> None:
        hold = not scope
        await self.session.attach(Wanted(LeaseRequest(Share(milli), **more), scope, hold, wait))

    @property
    def file(self) -> str:
        return self.session.files.session.read().state

    @property
    def milli(self) -> list[int]:
        """What the pool has lent."""
        return [held.grant.shares[0].milli for held in self.pool.held.values() if held.state == "attached"]

    async def until(self, happened: Callable[[], object]) -> None:
        async with asyncio.timeout(5.0):
            while not happened():
                await asyncio.sleep(0.01)


async def never(_holder: holder.LeaseHolder) -> None:
    """A renewal that is not due yet."""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


async def test_scopes_share_one_lease_that_grows_and_shrinks_back_to_the_hold(program: Program) -> None:
    async with program.session as session:
        await program.attach(200)
        await program.attach(100, "a")
        assert program.milli == [200]
        await program.attach(700, "b")
        assert program.milli == [700]
        await session.leave_scope("b")
        await session.leave_scope("a")
        assert program.milli == [200]
        assert session_view(session)["held"]
        await session.drop_hold()
        assert program.milli == []
        assert (session.record.state, program.file) == (State.PARKED, "parked")
    assert set(program.pool.session_states.values()) == {"closed"}


async def test_the_next_scope_goes_on_with_the_parked_session(program: Program) -> None:
    async with program.session as session:
        await program.attach(200, "a")
        first = session.record.session_id
        await session.leave_scope("a")
        await program.attach(200, "b")
        assert session.record.session_id == first
        assert program.said == []


async def test_nothing_to_detach_and_nothing_to_resize_are_refused(program: Program) -> None:
    async with program.session as session:
        for refused in (session.drop_hold(), session.resize(Share(300))):
            with pytest.raises(AttachRefusedError) as told:
                await refused
            assert told.value.reason == "not-attached"


async def test_a_session_that_began_without_a_cap_gets_none(program: Program) -> None:
    async with program.session as session:
        await program.attach(200, "a")
        await session.leave_scope("a")
        with pytest.raises(AttachRefusedError) as told:
            await program.attach(200, "b", strict=True)
        assert told.value.reason == "not-strict"


async def test_a_refusal_names_its_cause_for_who_wants_to_say_more(program: Program) -> None:
    async with program.session:
        program.pool.quota_milli = 100
        with pytest.raises(AttachRefusedError) as told:
            await program.attach(200)
        assert told.value.reason == "quota"
        assert getattr(told.value.__cause__, "reason", None) == "quota"


async def test_what_is_taken_back_for_others_is_waited_for_and_said(program: Program) -> None:
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.tell(lease.lease_id, Notice("reclaim", 30.0, "Project b needs it."))
        await program.until(lambda: session.record.notice)
        assert session_view(session)["notice"]["returns"]
        program.pool.capacity_milli = 100
        program.pool.end(lease.lease_id, "reclaim")
        await program.until(lambda: program.places)
        assert (session.record.returning, program.file) == (True, "waiting")
        program.pool.capacity_milli = 1000
        program.pool._wake()
        await program.until(lambda: session.record.lease)
        assert program.file == "attached"
        assert program.milli == [200]
    assert len(program.said) == 3, "the notice, the end, the return"


@pytest.mark.parametrize("reason", sorted(MOMENTARY))
async def test_a_refusal_that_is_only_momentary_ends_no_wait(
    program: Program, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(asking_again, "AGAIN_SECONDS", 0.05)
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.refuses["request"] = [reason, reason]
        program.pool.end(lease.lease_id, "reclaim")
        await program.until(lambda: program.places)
        assert (program.file, session.record.returning) == ("waiting", True)
        assert reason in str(session.record.message)
        await program.until(lambda: program.file == "attached")
        assert session.record.session_id == lease.session_id
        assert session.record.hold is not None
        keys = {request.idempotency_key for request in program.pool.requests[1:]}
        assert len(keys) == (3 if reason in NOT_STARTED else 1), "a key stands for the lease that ended"
    assert program.places[0] == 0
    assert program.places.count(0) == 1, "what is refused twice for one reason is said once"


async def test_each_lease_that_does_not_start_makes_the_pause_longer(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asking_again, "MOST_SECONDS", 5.0)
    program.pool.refuses["request"] = [
        "worker-failed",
        "ledger",
        "lease-ended",
        "worker-failed",
        "lease-ended",
    ]
    pool: Any = program.pool
    with monkeypatch.context() as time:
        time.setattr(asyncio, "sleep", pause)
        await asking_again.ask_again(
            pool,
            LeaseRequest(Share(200), idempotency_key="a"),
            None,
            wanted=lambda: True,
            on_queued=lambda _: None,
            on_attempt=lambda _: None,
        )
    assert pauses == [2.0, 2.0, 4.0, 5.0, 5.0]
    keys = [request.idempotency_key for request in program.pool.requests]
    assert keys == ["a", "a-2", "a-2", "a-3", "a-4", "a-5"]


async def test_a_session_that_never_starts_again_is_given_up_with_the_cause(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_again, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(asking_again, "GIVE_UP_SECONDS", 0.0)
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.refuses["request"] = ["worker-failed"] * 1000
        program.pool.end(lease.lease_id, "reclaim")
        await program.until(lambda: program.file == "parked")
        record = session.record
        assert (record.returning, record.reason, record.hold) == (False, "worker-failed", None)
        assert "worker-failed" in str(record.message)
        assert record.session_id == lease.session_id
    assert len(program.pool.requests) == 1 + asking_again.MOST_STARTS


class AskedAgain:
    """Asking again while leases do not start; its hours pass at once."""

    def __init__(self, pool: MemoryPool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool: Any = pool
        self.now = 100.0
        self._monkeypatch = monkeypatch

    async def outcome(self) -> Granted | Refused | None:
        async def pause(seconds: float) -> None:
            self.now += seconds

        with self._monkeypatch.context() as time:
            time.setattr(asyncio, "sleep", pause)
            return await asking_again.ask_again(
                self.pool,
                LeaseRequest(Share(200)),
                None,
                wanted=lambda: True,
                on_queued=lambda _: None,
                on_attempt=lambda _: None,
                clock=lambda: self.now,
            )


#: Pauses of 2, 4, 8, 16 and 32 s, and then of a minute each: with the last of them an hour is over.
PAUSES_OF_AN_HOUR = 5 + 59


async def test_a_node_that_is_broken_for_less_than_an_hour_ends_no_wait(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = AskedAgain(program.pool, monkeypatch)
    program.pool.refuses["request"] = ["worker-failed"] * PAUSES_OF_AN_HOUR
    assert isinstance(await asked.outcome(), Granted)


async def test_leases_that_do_not_start_for_an_hour_are_an_answer_whatever_each_says(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = AskedAgain(program.pool, monkeypatch)
    program.pool.refuses["request"] = ["worker-failed", "lease-ended"] * PAUSES_OF_AN_HOUR
    outcome = await asked.outcome()
    assert isinstance(outcome, Refused)
    assert outcome.reason in NOT_STARTED
    assert len(program.pool.requests) == PAUSES_OF_AN_HOUR + 1


async def test_a_pool_that_is_away_for_hours_between_two_such_leases_ends_no_wait(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = AskedAgain(program.pool, monkeypatch)
    program.pool.refuses["request"] = ["worker-failed", *["ledger"] * 4000, "worker-failed"]
    assert isinstance(await asked.outcome(), Granted)


async def test_a_scope_that_joins_in_the_pause_after_a_refusal_is_told_of_it(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_again, "AGAIN_SECONDS", 3600.0)
    told: list[QueuePlace] = []
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.refuses["request"] = ["ledger"]
        program.pool.end(lease.lease_id, "reclaim")
        await program.until(lambda: program.places)
        wanted = Wanted(LeaseRequest(Share(100)), "a", hold=False, wait_seconds=None)
        joins = asyncio.create_task(session.attach(wanted, told.append))
        await program.until(lambda: told)
        assert told == [QueuePlace(0, "The pool says ledger.", None)]
        joins.cancel()
        await asyncio.wait([joins])


async def test_a_hold_and_a_scope_are_told_apart_by_who_asked(program: Program) -> None:
    async with program.session as session:
        await program.attach(200, "a")
        assert session_view(session)["by"] == "magic"
        await program.attach(200)
        assert session_view(session)["by"] == "attach"


async def test_a_wait_that_is_given_up_in_a_pause_is_over_at_once(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_again, "AGAIN_SECONDS", 3600.0)
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.refuses["request"] = ["ledger"]
        program.pool.end(lease.lease_id, "reclaim")
        await program.until(lambda: program.places)
        await session.cancel_request()
        await program.until(lambda: session._returning is not None and session._returning.done())
        assert (session.record.state, program.file) == (State.PARKED, "parked")


async def test_a_limit_of_the_wait_counts_for_momentary_refusals_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_again, "AGAIN_SECONDS", 0.02)
    program = Program(tmp_path, return_seconds=0.1, asks_later=False, words=COMMAND_WORDS)
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.refuses["request"] = ["ledger"] * 1000
        program.pool.end(lease.lease_id, "reclaim")
        await program.until(lambda: program.file == "closed")
        assert session.record.reason == "ledger"


async def test_a_command_that_does_not_wait_again_is_closed_with_the_reason(tmp_path: Path) -> None:
    program = Program(tmp_path, return_seconds=0, asks_later=False, words=COMMAND_WORDS)
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.end(lease.lease_id, "preempt")
        await session.settle()
        assert (session.record.state, session.record.reason) == (State.PARKED, "preempt")
        record = session.files.session.read()
        assert (record.state, record.message) == ("closed", COMMAND_WORDS.ended("preempt"))
        assert program.said == [COMMAND_WORDS.taken_back("preempt")]
        assert session.latest is lease


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("reason", REASONS)
async def test_a_command_is_told_once_why_its_share_has_ended(
    tmp_path: Path, reason: str, lost: bool
) -> None:
    program = Program(tmp_path, return_seconds=0, asks_later=False, words=COMMAND_WORDS)
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        assert not session.files.session.read().told
        program.pool.end(lease.lease_id, reason, lost=lost)
        await session.settle()
        record = session.files.session.read()
        assert (record.state, record.told) == ("closed", True), "a refused call does not say it again"
    assert len(program.said) == 1


async def test_a_command_that_gives_up_waiting_has_said_that_as_well(tmp_path: Path) -> None:
    program = Program(tmp_path, return_seconds=0.2, asks_later=False, words=COMMAND_WORDS)
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.capacity_milli = 100
        program.pool.end(lease.lease_id, "reclaim")
        await program.until(lambda: program.file == "waiting")
        assert not session.files.session.read().told
        await program.until(lambda: program.file == "closed")
        assert session.files.session.read().told
    assert "does not wait for another" in program.said[-1]


async def test_who_may_ask_again_is_told_by_a_refused_call_how_to(program: Program) -> None:
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.end(lease.lease_id, "release")
        await program.until(lambda: session.record.lease is None)
        record = session.files.session.read()
        assert (record.state, record.told) == ("parked", False)
        assert record.message.endswith(PROGRAM_WORDS.way_out)
    assert len(program.said) == 1


async def test_a_session_that_the_pool_has_lost_is_followed_by_another_and_that_is_said(
    program: Program,
) -> None:
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        program.pool.capacity_milli = 100
        program.pool.end(lease.lease_id, "reclaim")
        await program.until(lambda: session.record.returning)
        program.pool.session_states[lease.session_id] = "lost"
        await session.cancel_request()
        assert session.record.state is State.PARKED
        program.pool.capacity_milli = 1000
        await program.attach(200, "a")
        assert session.record.session_id != lease.session_id
        assert len(program.said) == 2, "the end, and that the memory is lost"


async def test_a_pool_that_is_away_takes_nothing_from_a_program_with_a_share(program: Program) -> None:
    async with program.session as session:
        await program.attach(200)
        program.pool.down = True
        await program.attach(100, "a")
        assert session.record.scopes == {"a"}
        program.pool.down = False


async def test_calls_wait_for_a_pool_that_is_silent_for_longer_than_a_lease_lives(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "LEASE_SECONDS", 4 * INTERVAL)
    async with program.session as session:
        await program.attach(200)
        program.pool.down = True
        await program.until(lambda: program.file == "waiting")
        program.pool.down = False
        await program.until(lambda: program.file == "attached")
        lease = session.record.lease
        assert lease is not None
        program.pool.down = True
        await program.until(lambda: program.file == "waiting")
        program.pool.down = False
        program.pool.end(lease.lease_id, "lost")
        await program.until(lambda: program.file == "attached" and session.record.lease != lease)
        assert session.record.session_id == lease.session_id


async def test_a_program_that_does_not_wait_again_is_not_made_to_wait_for_a_silent_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "LEASE_SECONDS", 2 * INTERVAL)
    program = Program(tmp_path, return_seconds=0, asks_later=False)
    async with program.session as session:
        await program.attach(200)
        program.pool.down = True
        await program.until(lambda: session._leases._silent)
        assert program.file == "attached"
        program.pool.down = False


async def test_a_share_after_a_silence_is_there_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "LEASE_SECONDS", 2 * INTERVAL)
    program = Program(tmp_path)
    async with program.session as session:
        await program.attach(200, "a")
        program.pool.down = True
        await program.until(lambda: program.file == "waiting")
        await session.leave_scope("a")
        assert program.file == "parked"
        program.pool.down = False
        monkeypatch.setattr(holder.LeaseHolder, "renew_now", never)
        await program.attach(200, "b")
        assert program.file == "attached"


async def test_the_end_is_said_where_the_pool_does_not_hear_of_it(program: Program) -> None:
    async with program.session as session:
        await program.attach(200)
        program.pool.down = True
        closing = asyncio.create_task(session.close())
        await program.until(lambda: program.said)
        assert not session.files.session.path.exists(), "it is gone before the pool has heard of the end"
        program.pool.down = False
        await closing
    assert program.milli == []
    assert not session.files.session.path.exists()


async def test_a_reset_ends_the_session_and_the_next_attach_begins_another(program: Program) -> None:
    async with program.session as session:
        await program.attach(200)
        first = session.record.session_id
        assert first is not None
        await session.reset()
        assert (program.pool.session_states[first], program.milli, program.file) == ("closed", [], "closed")
        await program.attach(200)
        assert session.record.session_id != first


@pytest.mark.parametrize("reason", sorted(MOMENTARY))
async def test_a_reset_that_the_pool_cannot_take_now_is_late_and_not_done(
    program: Program, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(shell, "RELEASE_SECONDS", 0.01)
    async with program.session as session:
        await program.attach(200)
        first = session.record.session_id
        assert first is not None
        program.pool.refuses["close_session"] = [reason]
        with pytest.raises(AttachRefusedError) as told:
            await session.reset()
        assert told.value.reason == "pool-down"
        assert program.pool.session_states[first] == "attached"
        await program.until(lambda: program.pool.session_states[first] == "closed")


async def test_a_reset_of_a_session_that_is_nobodys_to_close_is_done(program: Program) -> None:
    async with program.session as session:
        await program.attach(200)
        program.pool.refuses["close_session"] = ["forbidden"]
        await session.reset()
        assert (program.file, [call for call, _ in program.pool.calls].count("close_session")) == (
            "closed",
            1,
        )


@pytest.mark.parametrize("reason", sorted(MOMENTARY))
async def test_a_share_that_the_pool_cannot_take_back_now_goes_back_a_little_later(
    program: Program, reason: str
) -> None:
    async with program.session as session:
        await program.attach(200, "a")
        program.pool.refuses["release"] = [reason]
        await session.leave_scope("a")
        assert (program.milli, session.record.state) == ([], State.PARKED)


async def test_cancelling_leaves_the_queue(program: Program) -> None:
    async with program.session as session:
        program.pool.capacity_milli = 100
        waiting = asyncio.create_task(program.attach(200, wait=None))
        await program.until(lambda: program.pool.waiting)
        assert session_view(session)["queue"]["place"] == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (program.pool.waiting, session.record.state) == ([], State.NONE)


async def test_an_interrupted_growth_of_the_hold_leaves_it_as_it_was(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program.session as session:
        await program.attach(200, "a")
        answers, asked = answered_when_told(program.pool, monkeypatch)
        growing = asyncio.create_task(program.attach(500))
        await asked.wait()
        growing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await growing
        answers.set()
        await program.until(lambda: session.record.asking is None)
        assert (program.milli, session.record.hold) == ([500], None)
        await session.leave_scope("a")
        assert program.milli == []


async def test_a_detach_while_the_hold_grows_is_told_to_who_asked_for_it(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program.session as session:
        await program.attach(200, "a")
        answers, asked = answered_when_told(program.pool, monkeypatch)
        growing = asyncio.create_task(program.attach(500))
        await asked.wait()
        await session.drop_hold()
        answers.set()
        with pytest.raises(AttachRefusedError) as told:
            await growing
        assert told.value.reason == "cancelled"
        await session.leave_scope("a")
        assert program.milli == []


def answered_when_told(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Event, asyncio.Event]:
    """A change of size waits for the first event, and sets the second one when it is asked for."""
    answers, asked, resize = asyncio.Event(), asyncio.Event(), pool.resize

    async def later(lease_id: str, share: Share) -> Grant:
        asked.set()
        await answers.wait()
        return await resize(lease_id, share)

    monkeypatch.setattr(pool, "resize", later)
    return answers, asked


async def test_a_full_disk_hides_no_notice(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    async with program.session as session:
        await program.attach(200)
        lease = session.record.lease
        assert lease is not None
        monkeypatch.setattr(session.files.usage, "write", disk_is_full)
        program.pool.tell(lease.lease_id, Notice("reclaim", 30.0, "Project b needs it."))
        await program.until(lambda: session.record.notice)
        assert len(program.said) == 1


async def test_a_share_whose_profile_cannot_be_written_is_used_all_the_same(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program.session as session:
        with monkeypatch.context() as disk:
            disk.setattr("gpupool.client.session.files.write_private", disk_is_full)
            await program.attach(200, "a")
        assert (program.milli, program.file) == ([200], "attached")
        assert not session.files.session.read().profile
        await session.leave_scope("a")
        await program.attach(200, "b")
        assert session.files.session.read().profile, "it is written with the next share"


async def test_a_session_file_that_cannot_be_written_is_written_as_soon_as_it_can(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "AGAIN_SECONDS", INTERVAL)
    async with program.session as session:
        with monkeypatch.context() as disk:
            disk.setattr("gpupool.client.session_file.write_private", disk_is_full)
            await program.attach(200, "a")
            assert (session.record.state, program.file) == (State.ATTACHED, "none")
            assert program.said == [session.files.problem]
        await program.until(lambda: program.file == "attached")
        assert session.files.problem == ""
        with monkeypatch.context() as disk:
            disk.setattr("gpupool.client.session_file.write_private", disk_is_full)
            await session.leave_scope("a")
            assert (session.record.state, program.file) == (State.PARKED, "attached")
        await program.until(lambda: program.file == "parked")
    assert len(program.said) == 2, "once each time, however often it is tried"
    assert str(session.files.session.path) in program.said[0]
    assert os.strerror(errno.ENOSPC) in program.said[0]


async def test_the_file_of_a_session_that_is_over_is_not_written_again(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "AGAIN_SECONDS", 0.01)
    async with program.session as session:
        with monkeypatch.context() as disk:
            disk.setattr("gpupool.client.session_file.write_private", disk_is_full)
            await program.attach(200)
            await session.close()
        await asyncio.sleep(0.05)
        assert not session.files.session.path.exists()


def disk_is_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
