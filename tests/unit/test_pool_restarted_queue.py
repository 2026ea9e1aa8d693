"""The queue after a restart of the pool, or under the next leader: places, what is kept, and when it is looked at first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.filters import parse
from gpupool.ledger.ledger import Ledger
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.instructions import TellGranted, TellQueued, TellRefused
from gpupool.model.state import ProjectRecord
from gpupool.pool.lifecycle import restore

from tests.support.pool_world import PoolWorld, session


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PoolWorld]:
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
    world.connect()
    yield world
    assert world.ledger is not None
    world.ledger.close()


def test_places_are_kept_whoever_asks_again_first(world: PoolWorld) -> None:
    lease = world.attach("holder", 1000)
    world.request("first", 1000, user="ann", wait=None)
    world.request("second", 1000, user="bob", wait=None)
    world.crash()
    world.connect()
    world.settle()
    world.told.clear()
    world.request("second", 1000, user="bob", wait=None)
    world.request("first", 1000, user="ann", wait=None)
    places = {x.key: x.place for x in world.told if isinstance(x, TellQueued)}
    assert places == {"first": 1, "second": 2}
    world.release(lease, close=True)
    world.settle()
    assert isinstance(world.answer("first"), TellGranted)
    assert isinstance(world.answer("second"), TellQueued)


def test_a_new_request_comes_behind_those_that_waited(world: PoolWorld) -> None:
    world.attach("holder", 1000)
    world.request("first", 1000, wait=None)
    world.crash()
    world.connect()
    world.settle()
    world.request("late", 1000, user="bob", wait=None)
    answer = world.answer("late")
    assert isinstance(answer, TellQueued)
    assert answer.place == 2


def test_those_behind_one_who_leaves_move_up_before_all_nodes_are_back(world: PoolWorld) -> None:
    world.attach("holder", 1000)
    for key in ("first", "second", "third"):
        world.request(key, 1000, user=key, wait=None)
    world.disconnect()  # within the time in which a pool that has just started waits for its nodes
    world.told.clear()
    world.handle(events.Cancelled(world.now, "first", "first"))
    assert {x.key: x.place for x in world.told if isinstance(x, TellQueued)} == {"second": 1, "third": 2}


def test_one_may_be_granted_before_its_caller_is_back_and_is_then_told(world: PoolWorld) -> None:
    lease = world.attach("holder", 1000)
    world.request("first", 1000, wait=None)
    world.crash()
    world.connect()
    world.settle()
    world.release(lease, close=True)
    world.settle()
    granted = [x for x in world.machine.state.leases.values() if x.key == "first"]
    assert [x.live for x in granted] == [True]
    world.told.clear()
    world.request("first", 1000, wait=None)
    world.settle()
    answer = world.answer("first")
    assert isinstance(answer, TellGranted)
    assert answer.lease_id == granted[0].id


def test_all_that_was_asked_for_is_kept(world: PoolWorld) -> None:
    world.attach("holder", 1000)
    world.request(
        "wish", mib=4096, wait=300.0, user="bob", label="notebook", holder="kernel-1", duration=60.0, reservation=True,
        strict=True, kind="preemptible", priority=70, filters=(parse("memory>=1GiB"),),
        pools=("default",), nodes="any",
    )  # fmt: skip
    (before,) = world.machine.state.requests.values()
    world.crash()
    (after,) = world.machine.state.requests.values()
    said_anew = {"place", "said", "eta", "wants", "told", "decision", "growth"}
    for name in before.__dataclass_fields__.keys() - said_anew:
        if name in ("since", "give_up_at"):
            assert getattr(after, name) == pytest.approx(getattr(before, name), abs=1e-3)
        else:
            assert getattr(after, name) == getattr(before, name), name


def test_its_patience_ends_when_it_was_to_end(world: PoolWorld) -> None:
    world.attach("holder", 1000)
    world.request("wish", 1000, user="bob", wait=20.0)
    world.live(10)
    world.crash()
    world.connect()
    world.live(5)
    assert world.machine.state.requests
    world.live(10)
    assert isinstance(world.answer("wish"), TellRefused)
    assert not world.machine.state.requests


def test_what_was_called_off_is_gone(world: PoolWorld) -> None:
    world.attach("holder", 1000)
    world.request("wish", 1000, user="bob", wait=None)
    world.handle(events.Cancelled(world.now, "bob", "wish"))
    world.crash()
    assert not world.machine.state.requests


def test_nobody_is_judged_before_the_nodes_are_back(tmp_path: Path) -> None:
    """Two devices on two nodes, one free. While its node is away the request would be told that nothing is free."""
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1, "node2": 1})
    world.connect("node1")
    world.connect("node2")
    world.attach("holder", 1000)
    taken = next(x.node for x in world.machine.state.leases.values())
    free = next(name for name in world.nodes if name != taken)
    world.crash()
    world.connect(taken)
    world.told.clear()
    world.request("wish", 1000, user="bob", wait=0.0)
    world.settle()
    assert not [x for x in world.told if isinstance(x, TellRefused)]
    world.connect(free)
    world.settle()
    assert isinstance(world.answer("wish"), TellGranted)


def test_a_node_that_does_not_come_back_is_waited_for_only_a_moment(tmp_path: Path) -> None:
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1, "node2": 1})
    world.connect("node1")
    world.connect("node2")
    world.crash()
    world.connect("node1")
    world.request("wish", 1000, user="bob", wait=None)
    world.advance(world.timers.return_ + 1)
    world.settle()
    assert isinstance(world.answer("wish"), TellGranted)


def test_a_ledger_that_was_restored_has_nobody_in_its_queue(world: PoolWorld) -> None:
    world.attach("holder", 1000)
    world.request("wish", 1000, user="bob", wait=None)
    assert world.ledger is not None
    restore.begin_anew(world.ledger)
    with Ledger(world._path, world._clock) as ledger:  # type: ignore[arg-type]
        assert not ledger.load().requests


def test_a_clock_that_was_ahead_protects_no_lease_and_makes_nobody_wait_longer(tmp_path: Path):
    world = PoolWorld(tmp_path / "ledger.db", nodes={"node1": 2})
    world.nodes["node1"].park_memory_mib = 1_000_000
    world.connect("node1")
    for name, deserved in (("default", 0), ("A", 0), ("B", 2000)):
        world.handle(events.ProjectSet(world.now, ProjectRecord(name, deserved), "admin"))
    parked = session(world, world.attach("p0", 100, user="cat", project="A")).id
    world.release(next(iter(world.machine.state.leases)))
    world.settle()
    mine = world.attach("a0", 1000, user="ann", project="A", duration=7200.0)
    world.attach("a1", 1000, user="ann", project="A")
    world.live(10)
    world.request("c0", 1000, user="cat", project="A", wait=600.0)
    world.settle()
    world._clock = Clock(offset=world._clock.offset - 3600)  # another machine takes over
    world.crash()
    state, now = world.machine.state, world.now
    assert {x.granted_at for x in state.leases.values()} == {now}
    assert state.leases[mine].ends_at == pytest.approx(now + 7200.0)
    (request,) = state.requests.values()
    assert request.since == now
    assert request.give_up_at == pytest.approx(now + 600.0)
    assert state.sessions[parked].parked_at == now
    world.connect("node1")
    world.live(world.timers.min_run)
    world.request("b0", 1000, user="bob", project="B", wait=None)
    world.live(world.timers.notice + 2)
    assert isinstance(world.answer("b0"), TellGranted)
