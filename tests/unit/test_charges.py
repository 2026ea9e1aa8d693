"""What is charged: each lease, each device, each size, to the millisecond."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gpupool.ledger import samples, schema
from gpupool.ledger.ledger import Ledger
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.history_amounts import MINUTE_MS, Amounts, Subject
from gpupool.model.state import LimitRecord
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import accounts
from sqlalchemy import delete, select

from tests.support.charged_world import ChargedWorld

UNIX = 1_700_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> ChargedWorld:
    world = ChargedWorld(tmp_path / "pool.sqlite", nodes={"node1": 2, "node2": 1})
    world.connect("node1")
    world.connect("node2")
    return world


def charges(world: ChargedWorld) -> list[tuple[str, str, int, int, int | None]]:
    """(lease, device, milli, from, to): times in ms since the world began, 1000 s after its clock's zero."""
    begin = UNIX + 1_000_000
    return [
        (
            row["lease_id"],
            row["device_id"],
            row["milli"],
            row["from_ms"] - begin,
            None if row["to_ms"] is None else row["to_ms"] - begin,
        )
        for row in world.rows(schema.charges)
    ]


def test_a_lease_is_charged_from_its_grant_until_its_share_is_free(world: ChargedWorld) -> None:
    lease = world.attach("k1", 200)
    world.now += 1.234
    world.release(lease)
    world.now += 0.5  # the worker has not confirmed yet, so nobody else can have it
    world.settle()
    assert charges(world) == [("l1", "node2/0", 200, 0, 1734)]


def test_a_resize_takes_the_larger_of_both_sizes_until_the_worker_has_confirmed(world: ChargedWorld) -> None:
    lease = world.attach("k1", 200)
    world.now += 1
    world.handle(events.Resized(world.now, lease, 500, None))
    world.now += 1
    world.settle()
    world.now += 1
    world.handle(events.Resized(world.now, lease, 300, None))
    world.now += 1
    world.settle()
    assert charges(world) == [
        ("l1", "node2/0", 200, 0, 1000),
        ("l1", "node2/0", 500, 1000, 4000),
        ("l1", "node2/0", 300, 4000, None),
    ]


def test_each_part_of_a_lease_on_several_nodes_is_charged_for_its_own_devices(world: ChargedWorld) -> None:
    world.request("k1", 400, wait=None, count=3, nodes="any")
    world.settle()
    assert sorted(charges(world)) == [
        ("l1", "node1/0", 400, 0, None),
        ("l1", "node1/1", 400, 0, None),
        ("l2", "node2/0", 400, 0, None),
    ]


def test_a_restart_closes_nothing(world: ChargedWorld) -> None:
    lease = world.attach("k1", 200)
    world.now += 5
    world.crash()
    assert charges(world) == [("l1", "node2/0", 200, 0, None)]
    world.connect("node2")
    world.now += 5
    world.release(lease)
    world.settle()
    assert charges(world) == [("l1", "node2/0", 200, 0, 10_000)]


def test_renewals_and_heartbeats_write_no_row(world: ChargedWorld) -> None:
    world.attach("k1", 200)
    world.live(20)
    assert charges(world) == [("l1", "node2/0", 200, 0, None)]


def test_a_wall_clock_that_was_set_back_between_two_runs_charges_nothing_negative(tmp_path: Path) -> None:
    path = tmp_path / "pool.sqlite"
    world = ChargedWorld(path)
    world.connect()
    lease = world.attach("k1", 200)
    world._clock = Clock(offset=world._clock.offset - 3600)
    world.crash()
    world.connect()
    world.release(lease)
    world.settle()
    ((_, _, _, begin, end),) = charges(world)
    assert begin == end == 0


def test_a_ledger_of_before_charges_begins_them_with_its_leases(world: ChargedWorld, tmp_path: Path) -> None:
    world.attach("k1", 200)
    world.now += 2
    world.release(world.attach("k2", 300))
    world.settle()
    assert world.ledger is not None
    world.ledger.close()
    path = tmp_path / "pool.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM charges")
        database.execute("DELETE FROM capacity")
    ledger = Ledger(path, Clock.start())  # a boot time of its own: machines boot when they like
    with ledger.engine.connect() as connection:
        found: list[Mapping[str, Any]] = list(connection.execute(select(schema.charges)).mappings())
        there = {row.device_id: row.from_ms for row in connection.execute(select(schema.capacity))}
    assert [(row["lease_id"], row["milli"], row["from_ms"], row["to_ms"]) for row in found] == [
        ("l1", 200, UNIX + 1_000_000, None)
    ]
    assert set(there) == {"node1/0", "node1/1", "node2/0"}
    assert there["node2/0"] == UNIX + 1_000_000, "the device was there when the lease began"


class TestCapacity:
    def test_a_device_counts_until_its_node_is_lost_and_again_when_it_is_back(
        self, world: ChargedWorld
    ) -> None:
        world.now += 10
        world.handle(world.nodes["node1"].hello(7, world.now))
        world.advance(30)
        world.connect("node2")
        rows = [row for row in world.rows(schema.capacity) if row["device_id"] == "node2/0"]
        begin = UNIX + 1_000_000
        assert [(row["from_ms"] - begin, row["to_ms"] and row["to_ms"] - begin) for row in rows] == [
            (0, 30_000),
            (40_000, None),
        ]
        assert rows[0]["milli"] == 1000
        assert rows[0]["mib"] == 7936

    def test_a_device_that_its_node_no_longer_offers_is_not_there(self, world: ChargedWorld) -> None:
        world.now += 1
        world.nodes["node1"].devices = world.nodes["node1"].devices[:1]
        world.connect("node1")
        gone = [row for row in world.rows(schema.capacity) if row["device_id"] == "node1/1"]
        assert [row["to_ms"] - row["from_ms"] for row in gone] == [1000]


class TestWaits:
    def test_a_request_counts_while_it_waits(self, world: ChargedWorld) -> None:
        first = world.attach("k1", 800, count=2)
        world.request("k2", 500, user="bob", wait=None, count=2)
        world.now += 3
        world.release(first)
        world.settle()
        (row,) = world.rows(schema.waits)
        assert (row["user"], row["milli"], row["to_ms"] - row["from_ms"]) == ("bob", 1000, 3000)

    def test_who_is_served_at_once_leaves_no_row(self, world: ChargedWorld) -> None:
        world.attach("k1", 200)
        world.request("k2", 900, user="bob", count=3)  # refused at once
        assert world.rows(schema.waits) == []

    def test_memory_is_counted_as_the_part_of_a_device_that_it_is(self, world: ChargedWorld) -> None:
        world.attach("k1", 1000, count=2)
        world.attach("k3", 1000)
        world.request("k2", mib=3968, user="bob", wait=None)
        assert [row["milli"] for row in world.rows(schema.waits)] == [500]

    def test_a_request_waits_on_when_the_pool_is_killed(self, world: ChargedWorld) -> None:
        world.attach("k1", 1000, count=2)
        world.attach("k3", 1000)
        world.request("k2", 500, user="bob", wait=None)
        world.now += 100
        world.crash()
        (row,) = world.rows(schema.waits)
        assert row["to_ms"] is None

    def test_one_that_waits_no_more_ended_with_the_last_thing_that_the_pool_wrote(
        self, world: ChargedWorld
    ) -> None:
        world.attach("k1", 1000, count=2)
        world.attach("k3", 1000)
        world.request("k2", 500, user="bob", wait=None)
        world.now += 2
        world.request("k4", 500, user="eve")  # refused at once, which is written
        world.now += 100
        assert world.ledger is not None
        with world.ledger.engine.begin() as connection:
            connection.execute(delete(schema.requests))
        world.crash()
        (row,) = world.rows(schema.waits)
        assert row["to_ms"] - row["from_ms"] == 2000


def test_while_the_pool_is_down_nothing_is_charged_once_no_worker_serves(world: ChargedWorld) -> None:
    world.handle(events.LimitSet(world.now, LimitRecord("ann", gpu_seconds=8 * 3600), "admin"))
    lease = world.attach("k1", 1000, user="ann")
    world.live(10)
    world.crash(36_000)
    served = 10_000 + round(world.timers.reuse * 1000)
    assert charges(world) == [
        (lease, "node2/0", 1000, 0, served),
        (lease, "node2/0", 1000, 36_010_000, None),
    ]
    now, state = world.now, world.machine.state
    assert accounts.used_in_window(state, "ann", now).milli_ms == 1000 * served
    by_project = accounts.decayed_usage(state, world.timers, now)["default"]
    assert by_project == pytest.approx(served, rel=0.05)  # in milli-GPU-seconds, of which some fade
    world.connect("node1")
    world.connect("node2")
    world.live(5)
    world.release(lease)
    world.settle()
    world.check_charges()
    used = accounts.used_in_window(world.machine.state, "ann", world.now).milli_ms
    assert used == 1000 * (served + round((world.now - now) * 1000))
    world.attach("k2", 1000, user="ann")


def test_a_pool_that_is_soon_back_charges_all_the_time(world: ChargedWorld) -> None:
    world.attach("k1", 1000)
    world.crash(world.timers.reuse)
    assert charges(world) == [("l1", "node2/0", 1000, 0, None)]


class SetClock(Clock):
    """A clock that is set by the test."""

    time = 1000.0

    def now(self) -> float:
        return self.time


@pytest.mark.parametrize(
    ("history", "down", "served"),
    [(0.0, 110.0, None), (0.0, 3600.0, 120.0), (3000.0, 3100.0, None), (3000.0, 3600.0, 3180.0)],
)
def test_a_pool_serves_until_a_while_after_what_it_wrote_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: float, down: float, served: float | None
) -> None:
    # The latest of what it wrote may be the history: of the minute that began at 3000 s.
    monkeypatch.setattr(SetClock, "time", 1000.0)
    clock = SetClock(1_700_000_000.0 - 1000.0 + 40.0)  # a full minute
    path = tmp_path / "pool.sqlite"
    with Ledger(path, clock) as ledger:
        PoolShell(ledger, clock, Timers())
        if history:
            with samples.writing(ledger.engine) as connection:
                from_ms = round((1_700_000_040 + history) * 1000)
                samples.add(connection, MINUTE_MS, from_ms, {Subject(): Amounts(covered_ms=MINUTE_MS)})
    monkeypatch.setattr(SetClock, "time", 1000.0 + down)
    with Ledger(path, clock) as ledger:
        heard: list[events.Event] = []
        monkeypatch.setattr(PoolShell, "apply", lambda _shell, event: heard.append(event))
        PoolShell(ledger, clock, Timers())
    (restarted,) = heard
    assert isinstance(restarted, events.Restarted)
    assert restarted.served_until == (None if served is None else pytest.approx(1000.0 + served))
