"""Events that come together are stored together: one wait for the disk, and no other difference."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpupool.ledger import schema
from gpupool.ledger.ledger import Ledger, LedgerError, read_journal
from gpupool.ledger.rebuild import moment
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.instructions import Instruction, TellQueued
from gpupool.pool.lifecycle import arrivals
from gpupool.pool.lifecycle.mailbox import Mailbox
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.timers import Timers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from tests.support.pool_world import counting_ids, offered


class StillClock(Clock):
    """Time stands still, so that two pools can be compared."""

    def now(self) -> float:
        return 1000.0


class Pool:
    """A shell over a real ledger, with one node of two devices that never answers; its transactions are counted."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        clock = StillClock(1_700_000_000.0)
        self.ledger = Ledger(path, clock)
        self.shell = PoolShell(self.ledger, clock, Timers())
        self.shell.machine.ids = counting_ids()
        self.now = self.shell.clock.now()
        connection, _ = self.shell.open_stream("node1")
        self.shell.apply(events.NodeHello(self.now, "node1", connection, "run-1", (offered(0), offered(1))))
        self.transactions = 0
        #: Transactions to come that the disk will not take.
        self.broken = 0
        writing = self.ledger.database.writing

        @contextlib.contextmanager
        def counted(step: int) -> Iterator[Any]:
            self.transactions += 1
            with writing(step) as opened:
                yield opened
                if self.broken:
                    self.broken -= 1
                    raise OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))

        self.ledger.database.writing = counted  # type: ignore[method-assign]

    def ask(self, key: str, milli: int = 1000, user: str = "ann") -> events.Requested:
        return events.Requested(self.now, user, key, milli, None, 1, wait=None)

    def journal(self) -> list[tuple[str, str]]:
        with self.ledger.engine.connect() as connection:
            return [(line["kind"], line["explanation"]) for line in read_journal(connection)]

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that the ledger has, by table."""
        with self.ledger.engine.connect() as connection:
            return {
                table.name: [
                    tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))
                ]
                for table in schema.metadata.sorted_tables
            }

    def together(self, *group: events.Event) -> list[BaseException | None]:
        async def run() -> list[BaseException | None]:
            return await asyncio.gather(
                *(self.shell.apply_together(event) for event in group), return_exceptions=True
            )

        return asyncio.run(run())


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    # A busy machine makes groups smaller; here they are counted.
    monkeypatch.setattr(arrivals, "_LONGEST_GROUP", math.inf)
    monkeypatch.setattr(arrivals, "_LONGEST_GATHERING", math.inf)
    return Pool(tmp_path / "pool.sqlite")


def test_requests_of_one_moment_are_one_transaction_and_a_step_each(pool: Pool) -> None:
    before = pool.ledger.last_step
    assert pool.together(*(pool.ask(f"k{number}") for number in range(20))) == [None] * 20
    assert pool.transactions == 1
    assert pool.ledger.last_step == before + 20
    numbers = [request.number for request in pool.shell.state.requests.values()]
    assert numbers == sorted(set(numbers))
    assert count_of(pool.journal())["queue"] == 18


def count_of(lines: list[tuple[str, str]]) -> dict[str, int]:
    kinds = [kind for kind, _ in lines]
    return {kind: kinds.count(kind) for kind in kinds}


def test_a_large_crowd_is_several_transactions(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_MOST_REQUESTS", 5)
    assert set(pool.together(*(pool.ask(f"k{number}") for number in range(12)))) == {None}
    assert pool.transactions == 3


def test_a_crowd_costs_few_statements(pool: Pool) -> None:
    executed: list[str] = []
    event.listen(pool.ledger.engine, "after_cursor_execute", lambda *said: executed.append(said[2]))
    assert pool.together(*(pool.ask(f"k{number}") for number in range(20))) == [None] * 20
    assert len(executed) < 20
    assert len([statement for statement in executed if "INTO journal" in statement]) == 1


def test_nobody_hears_of_anything_before_it_is_stored(pool: Pool) -> None:
    async def run() -> list[bool]:
        mailboxes = [pool.shell.join("ann", f"k{number}") for number in range(5)]
        seen: list[bool] = []
        put: Callable[[Mailbox, Any], None] = Mailbox.put

        def spy(mailbox: Mailbox, told: Instruction) -> None:
            with sqlite3.connect(pool.ledger.name) as reader:  # another connection sees what is committed
                seen.append(
                    reader.execute("SELECT count(*) FROM journal WHERE kind = 'queue'").fetchone() == (3,)
                )
            put(mailbox, told)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Mailbox, "put", spy)
            await asyncio.gather(*(pool.shell.apply_together(pool.ask(f"k{number}")) for number in range(5)))
        assert isinstance(await mailboxes[4].get(), TellQueued)
        return seen

    seen = asyncio.run(run())
    assert seen
    assert all(seen)


def test_an_event_that_fails_takes_no_other_with_it(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = pool.shell.machine.handle

    def picky(event: events.Event) -> list[Instruction]:
        done = handle(event)
        if isinstance(event, events.Requested) and event.key == "bad":
            raise ZeroDivisionError
        return done

    monkeypatch.setattr(pool.shell.machine, "handle", picky)
    results = pool.together(pool.ask("k0"), pool.ask("k1"), pool.ask("bad"), pool.ask("k3"))
    assert [type(result) for result in results] == [type(None), type(None), ZeroDivisionError, type(None)]
    assert [request.key for request in pool.shell.state.requests.values()] == ["k3"]
    assert {lease.key for lease in pool.shell.state.leases.values()} == {"k0", "k1"}
    assert count_of(pool.journal())["grant"] == 2


def test_what_cannot_be_stored_has_not_happened(pool: Pool) -> None:
    before, lines = pool.ledger.last_step, pool.journal()
    pool.broken = 1000
    results = pool.together(*(pool.ask(f"k{number}") for number in range(20)))
    assert all(isinstance(result, LedgerError) for result in results)
    assert pool.transactions <= 4, "a disk that does not answer was tried again and again"
    assert (dict(pool.shell.state.requests), dict(pool.shell.state.leases)) == ({}, {})
    assert pool.ledger.last_step == before
    assert pool.journal() == lines
    assert pool.shell.ledger_problem is not None
    pool.broken = 0
    assert pool.together(*(pool.ask(f"k{number}") for number in range(20))) == [None] * 20
    assert pool.shell.ledger_problem is None
    assert len(pool.shell.state.requests) == 18


def test_a_stall_is_made_up_for_when_the_ledger_answers_again(pool: Pool) -> None:
    """A server that stood still for a minute finds its database's connection broken, too."""
    pool.together(pool.ask("k0"))
    (lease,) = pool.shell.state.leases
    pool.shell.apply(events.Tick(pool.now))
    pool.broken = 1
    with pytest.raises(LedgerError):
        pool.shell.apply(events.Tick(pool.now + 60))
    pool.shell.apply(events.Tick(pool.now + 60.5))
    pool.shell.apply(events.Tick(pool.now + 61))
    assert pool.shell.state.leases[lease].holds
    assert not pool.shell.state.nodes["node1"].lost
    pool.shell.apply(events.Tick(pool.now + 61.5))
    for second in range(62, 200):
        pool.shell.apply(events.Tick(pool.now + second))
    assert pool.shell.state.nodes["node1"].lost, "it is made up for once"


def test_what_stores_nothing_is_handled_though_nothing_can_be_stored(pool: Pool) -> None:
    pool.together(*(pool.ask(f"k{number}") for number in range(2)))
    pool.broken = 1000
    before = pool.transactions
    results = pool.together(
        events.Released(pool.now, "l1", "release"),
        events.Released(pool.now, "l2", "release"),
        events.NodeHeartbeat(pool.now, "node1", 1, 1, ()),
        events.Renewed(pool.now, ("l1", "l2")),
        events.NodeDrained(pool.now, "node1", True, "", "root"),
    )
    failed = [isinstance(result, LedgerError) for result in results]
    assert failed == [True, True, False, False, True]
    assert pool.transactions == before + 3, "once together, and two of them alone"
    assert not pool.shell.state.nodes["node1"].drained


def test_when_a_group_is_not_stored_its_steps_are_tried_one_by_one(pool: Pool) -> None:
    pool.broken = 1
    assert pool.together(pool.ask("k0"), pool.ask("k1"), pool.ask("k2")) == [None] * 3
    assert pool.transactions == 4
    with pool.ledger.engine.connect() as connection:
        rebuilt = moment(connection, pool.ledger.last_step).state
    assert set(rebuilt.leases) == set(pool.shell.state.leases)
    assert set(rebuilt.requests) == set(pool.shell.state.requests)


def test_an_event_that_is_handled_at_once_comes_after_those_that_came_before(pool: Pool) -> None:
    """But for requests: they wait for all else."""
    pool.shell.apply(pool.ask("a"))

    async def run() -> None:
        waiting = [
            asyncio.ensure_future(pool.shell.apply_together(event))
            for event in (pool.ask("b"), events.Released(pool.now, "l1", "release"))
        ]
        await asyncio.sleep(0)
        pool.shell.apply(events.Tick(pool.now))
        assert [kind for kind, _ in pool.journal()][-1] == "release"
        await asyncio.gather(*waiting)

    asyncio.run(run())
    assert [kind for kind, _ in pool.journal()][-2:] == ["release", "grant"]


def test_what_keeps_leases_alive_overtakes_a_crowd_that_asks(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []
    handle = pool.shell.machine.handle

    def noted(event: events.Event) -> list[Instruction]:
        handled.append(type(event).__name__)
        return handle(event)

    async def run() -> None:
        crowd = [asyncio.ensure_future(pool.shell.apply_together(pool.ask(f"k{i}"))) for i in range(200)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        monkeypatch.setattr(pool.shell.machine, "handle", noted)
        await pool.shell.apply_together(events.NodeHeartbeat(pool.now, "node1", 1, 1, ()))
        await asyncio.gather(*crowd)

    asyncio.run(run())
    assert handled[0] == "NodeHeartbeat" and len(handled) > 100


def test_quick_requests_are_stored_together_with_what_goes_before_them(pool: Pool) -> None:
    pool.shell.apply(pool.ask("a"))
    pool.transactions = 0
    assert pool.together(pool.ask("b"), events.Released(pool.now, "l1", "release")) == [None, None]
    assert pool.transactions == 1
    assert [kind for kind, _ in pool.journal()][-2:] == ["release", "grant"]


def test_slow_requests_wait_until_all_else_is_stored(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_LONGEST_GROUP", 0.1)

    async def kinds() -> list[list[str]]:
        waiting = arrivals.Arrivals(pool.shell.clock)
        found = []
        for seconds in (1.0, 0.0, 0.0):
            waiting.add(pool.ask("k"))
            waiting.add(events.Tick(pool.now))
            group = waiting.take()
            waiting.took(group, seconds)
            found.append([type(event).__name__ for event, _ in group])
        return found

    assert asyncio.run(kinds()) == [["Tick", "Requested"], ["Tick"], ["Tick"]]


def test_a_request_is_not_made_if_its_caller_has_left_before_it_is_taken(pool: Pool) -> None:
    async def run() -> None:
        crowd = [asyncio.ensure_future(pool.shell.apply_together(pool.ask(f"k{i}"))) for i in range(100)]
        await asyncio.sleep(0)
        last = crowd.pop()
        last.cancel()
        pool.shell.forget("ann", "k99")
        await asyncio.gather(*crowd)
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert "k98" in {request.key for request in pool.shell.state.requests.values()}
    assert "k99" not in {request.key for request in pool.shell.state.requests.values()}
    assert count_of(pool.journal()) == {"node-hello": 1, "grant": 2, "queue": 97}


async def ticks(shell: PoolShell, number: int) -> None:
    shell.timers = replace(shell.timers, tick=0.0)
    running = asyncio.ensure_future(shell.run_timers())
    for _ in range(number + 1):
        await asyncio.sleep(0)
    running.cancel()


async def leave_in_vain(pool: Pool, *keys: str) -> None:
    pool.broken = 1 + len(keys)  # together, and each alone
    for key in keys:
        pool.shell.forget("ann", key)
    for _ in range(50):
        await asyncio.sleep(0)
    assert pool.broken == 0


def test_callers_that_leave_while_nothing_can_be_stored_are_let_go_when_it_can(pool: Pool) -> None:
    pool.together(*(pool.ask(f"k{number}") for number in range(4)))

    async def run() -> None:
        await leave_in_vain(pool, "k2", "k3")
        assert [request.key for request in pool.shell.state.requests.values()] == ["k2", "k3"]
        connection, _ = pool.shell.open_stream("node2")
        pool.shell.apply(events.NodeHello(pool.now, "node2", connection, "run-1", (offered(0),)))
        assert [request.key for request in pool.shell.state.requests.values()] == ["k3"]
        await ticks(pool.shell, 1)

    asyncio.run(run())
    assert not pool.shell.state.requests
    granted = next(lease for lease in pool.shell.state.leases.values() if lease.key == "k2")
    assert granted.renew_by is not None, "it starts for nobody"


def test_but_not_if_it_has_come_again(pool: Pool) -> None:
    pool.together(*(pool.ask(f"k{number}") for number in range(4)))

    async def run() -> None:
        leaving = asyncio.ensure_future(leave_in_vain(pool, "k2", "k3"))
        await asyncio.sleep(0)
        pool.shell.join("ann", "k2")  # before it is known that the other's end cannot be stored
        await leaving
        pool.shell.join("ann", "k3")
        await ticks(pool.shell, 1)

    asyncio.run(run())
    assert [request.key for request in pool.shell.state.requests.values()] == ["k2", "k3"]


def test_callers_of_before_are_let_go_together_though_that_cannot_be_stored_at_once(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.together(*(pool.ask(f"k{number}") for number in range(12)))
    waiting = {f"k{number}" for number in range(2, 12)}
    shell = PoolShell(pool.ledger, StillClock.start(), Timers())

    async def look() -> set[str]:
        await ticks(shell, 1)
        for _ in range(50):
            await asyncio.sleep(0)
        return {request.key for request in shell.state.requests.values()}

    async def run() -> None:
        assert await look() == waiting, "they may come again yet"
        monkeypatch.setattr(StillClock, "now", lambda _: 1000.0 + Timers().reuse)
        shell.apply(events.Tick(shell.clock.now()))  # the node is lost: the next tick has nothing to store
        pool.broken = 3  # together, and two alone; then it is known
        assert await look() == waiting
        assert pool.broken == 0
        before = pool.transactions
        assert await look() == set()
        assert pool.transactions <= before + 2, "the tick, and all of them"

    asyncio.run(run())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    some.lists(
        some.tuples(some.sampled_from("abcd"), some.sampled_from([200, 600, 1000]), some.sampled_from(["ask", "leave", "give"])),
        min_size=2,
        max_size=12,
    ),
    some.integers(1, 5),
)  # fmt: skip
def test_the_outcome_is_that_of_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, str]], size: int
) -> None:
    folder = tmp_path_factory.mktemp("group")
    alone, grouped = Pool(folder / "alone.sqlite"), Pool(folder / "grouped.sqlite")
    grouped.now = alone.now

    def event(pool: Pool, number: int) -> events.Event:
        key, milli, what = rows[number]
        if what == "ask":
            return pool.ask(key, milli)
        if what == "leave":
            return events.Cancelled(pool.now, "ann", key)
        return events.Released(pool.now, f"l{number % 3 + 1}", "release")

    for first in range(0, len(rows), size):
        numbers = range(first, min(first + size, len(rows)))
        # What is given back goes first, and else all in its order.
        for number in sorted(numbers, key=lambda number: rows[number][2] != "give"):
            alone.shell.apply(event(alone, number))
        assert set(grouped.together(*(event(grouped, number) for number in numbers))) == {None}
    one, other = alone.shell.state, grouped.shell.state
    assert dict(one.requests) == dict(other.requests)
    assert dict(one.leases) == dict(other.leases)
    assert dict(one.sessions) == dict(other.sessions)
    assert alone.journal() == grouped.journal()
    assert alone.ledger.last_step == grouped.ledger.last_step
    assert alone.rows() == grouped.rows()


def test_requests_that_take_long_are_handled_in_small_groups(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_LONGEST_GROUP", 0.1)

    async def sizes() -> list[int]:
        waiting = arrivals.Arrivals(pool.shell.clock)
        for number in range(60):
            waiting.add(pool.ask(f"k{number}"))
        found = []
        for seconds in (1.0, 1.0, 1.0, 1.0, 1.0, 0.01, 0.01, 0.01):
            group = waiting.take()
            waiting.took(group, seconds)
            found.append(len(group))
        return found

    assert asyncio.run(sizes()) == [25, 12, 6, 3, 1, 1, 2, 4]


class TestGathering:
    def test_a_lone_event_waits_for_a_few_turns_of_the_loop(self) -> None:
        gathering = arrivals.Gathering()
        gathering.begin(0.0)
        turns = [gathering.is_over(1, 0.0) for _ in range(arrivals._QUIET_TURNS + 1)]
        assert turns == [False] * arrivals._QUIET_TURNS + [True]

    def test_whoever_comes_meanwhile_is_waited_for_until_the_group_is_large(self) -> None:
        gathering = arrivals.Gathering()
        gathering.begin(0.0)
        over = [there for there in range(1, 100) if gathering.is_over(there, 0.0)]
        assert over[0] == arrivals._MOST_REQUESTS

    def test_and_not_for_long(self) -> None:
        gathering = arrivals.Gathering()
        gathering.begin(5.0)
        assert not gathering.is_over(1, 5.0)
        assert gathering.is_over(2, 5.0 + arrivals._LONGEST_GATHERING)
