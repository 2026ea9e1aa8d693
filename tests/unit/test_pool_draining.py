"""Work that runs on when its lease ends: nobody gets the share before nothing of it computes, however the lease ends,
and all of it is charged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from gpupool.engines.records import OTHER_PROTOCOL_STATUS, UNKNOWN_STATUS
from gpupool.model import events, instructions
from gpupool.model.clock import Clock
from gpupool.model.state import LimitRecord
from gpupool.pool.api import convert
from gpupool.pool.model.timers import Timers
from gpupool.scheduler.model import Quota

from tests.support.pool_world import PoolWorld, lease, session

CLOCK = Clock(offset=0.0)


@pytest.fixture
def world() -> PoolWorld:
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    return world


def busy(world: PoolWorld, key: str = "k1", milli: int = 600, **more: object) -> str:
    """A lease whose program has started a kernel that never ends."""
    name = world.attach(key, milli, **more)
    for node in world.nodes.values():
        worker = node.workers.get(lease(world, name).session_id)
        if worker is not None:
            worker.runs(world.now)
    world.live(5.0)
    return name


def deliver_reports(world: PoolWorld) -> None:
    for node in world.nodes.values():
        if node.connection is not None:
            node.heartbeat(world.now)
    world.settle()


def by_release(world: PoolWorld, name: str) -> None:
    world.release(name)


def when_idle(world: PoolWorld, name: str) -> None:
    world.release(name, "idle")


def by_admin(world: PoolWorld, name: str) -> None:
    world.release(name, "admin")


def at_its_deadline(world: PoolWorld, name: str) -> None:
    while lease(world, name).live:
        world.live(1.0)


def unrenewed(world: PoolWorld, name: str) -> None:
    """Its holder is gone, or its token was revoked."""
    while lease(world, name).live:
        world.live(1.0, renew=False)


def with_its_budget(world: PoolWorld, name: str) -> None:
    limit = LimitRecord("ann", gpu_seconds=5, window_seconds=86400)
    world.handle(events.LimitSet(world.now, limit, "root"))
    while lease(world, name).live:
        world.live(1.0)


def for_another(world: PoolWorld, name: str) -> None:
    """Taken back, with notice, for a project that deserves it."""
    world.project("poor", 1000)
    world.request("k2", 600, user="bob", wait=None, project="poor")
    while lease(world, name).live:
        world.live(1.0)


def by_a_drain(world: PoolWorld, name: str) -> None:
    world.handle(events.NodeDrained(world.now, "node1", True, "maintenance", "root", evict=True))
    while lease(world, name).live:
        world.live(1.0)


def test_a_drain_that_is_said_again_ends_nothing_later(world: PoolWorld) -> None:
    name = busy(world)
    drain = events.NodeDrained(world.now, "node1", True, "maintenance", "root", evict=True)
    world.handle(drain)
    until = lease(world, name).notice.until
    for _ in range(3):
        world.live(world.timers.notice / 4)
        world.handle(replace(drain, now=world.now))
        assert lease(world, name).notice.until == until
    world.live(world.timers.notice / 2)
    assert lease(world, name).reason == "drain"


def moved_away(world: PoolWorld, name: str) -> None:
    world.release(name, "consolidate")


ENDS = [
    by_release, when_idle, by_admin, at_its_deadline, unrenewed, with_its_budget, for_another, by_a_drain, moved_away,
]  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_the_share_is_free_when_the_worker_has_confirmed_and_not_before(
    world: PoolWorld, end: Callable[[PoolWorld, str], None]
) -> None:
    name = busy(world, duration=40.0 if end is at_its_deadline else 0.0)
    worker = world.nodes["node1"].workers["s1"]
    end(world, name)
    over = world.now
    world.settle()
    deliver_reports(world)
    assert (lease(world, name).state, worker.work(world.now)) == ("releasing", "draining")
    shown = next(x for x in convert.lease_list(world.machine.state, CLOCK, None).leases if x.id == name)
    assert (shown.state, shown.work, shown.kernel) == ("releasing", "draining", "forever")
    assert world.free() == 400
    world.advance(world.timers.drain - (world.now - over) - 1.0)
    world.settle()
    assert (lease(world, name).state, world.free()) == ("releasing", 400)
    world.advance(2.0)
    world.settle()
    assert not worker.computes(world.now)
    assert lease(world, name).state == "ended"
    assert session(world, name).state == "parked"


def test_what_ran_is_shown_as_draining_before_the_worker_says_so(world: PoolWorld) -> None:
    name = busy(world)
    assert session(world, name).usage.work == "running"
    world.release(name)
    (shown,) = convert.lease_list(world.machine.state, CLOCK, None).leases
    (own,) = convert.session_list(world.machine.state, world.now, "ann").sessions
    assert (shown.work, own.usage.work, own.usage.kernel) == ("draining", "draining", "forever")


def test_who_waits_gets_the_share_within_the_grace(world: PoolWorld) -> None:
    name = busy(world)
    world.request("k2", 800, user="bob", wait=None)
    world.release(name)
    world.settle()
    assert isinstance(world.answer("k2"), instructions.TellQueued)
    world.advance(world.timers.drain + 1.0)
    world.settle()
    assert isinstance(world.answer("k2"), instructions.TellGranted)


def test_a_device_that_cannot_stop_a_kernel_loses_the_session_and_says_why(world: PoolWorld) -> None:
    world.nodes["node1"].stops_kernels = False
    name = busy(world)
    world.release(name, "idle")
    world.settle()
    world.advance(world.timers.drain + 1.0)
    world.settle()
    assert (lease(world, name).state, lease(world, name).reason) == ("ended", "idle")
    assert (session(world, name).state, session(world, name).reason) == ("closed", "stopped")
    assert "kernel forever" in [line for line in world.journal if line.kind == "closed"][-1].explanation
    assert world.free() == 1000


def test_a_session_that_its_user_ended_is_reset(world: PoolWorld) -> None:
    name = busy(world)
    del world.nodes["node1"].workers["s1"]
    me = (world.now, "node1", world.nodes["node1"].connection)
    world.handle(events.WorkerExited(*me, "s1", 10, "ended by its user"))
    assert (lease(world, name).state, lease(world, name).reason) == ("ended", "reset")
    assert (session(world, name).state, session(world, name).reason) == ("closed", "reset")


@pytest.mark.parametrize("parked", [False, True])
def test_a_session_whose_node_was_upgraded_ends_with_that_reason(world: PoolWorld, parked: bool) -> None:
    name = busy(world)
    if parked:
        world.release(name, "exit")
        world.settle()
    # The hello of the new agent names the worker; what it was is told right after it.
    world.disconnect()
    world.connect()
    world.handle(
        events.WorkerExited(
            world.now,
            "node1",
            world.nodes["node1"].connection,
            "s1",
            OTHER_PROTOCOL_STATUS,
            "of another version",
        )
    )
    assert (session(world, name).state, session(world, name).reason) == ("closed", "upgrade")
    assert lease(world, name).reason == ("exit" if parked else "upgrade")
    assert "of another version" in [line for line in world.journal if line.kind == "closed"][-1].explanation


def test_an_end_whose_status_nobody_saw_is_a_loss(world: PoolWorld) -> None:
    name = busy(world)
    world.handle(
        events.WorkerExited(world.now, "node1", world.nodes["node1"].connection, "s1", UNKNOWN_STATUS, "")
    )
    assert (session(world, name).state, session(world, name).reason) == ("closed", "lost")
    assert lease(world, name).reason == "lost"
    said = [line for line in world.journal if line.kind == "closed"][-1].explanation
    assert str(UNKNOWN_STATUS) not in said and "nobody saw" in said


def test_a_reset_closes_at_once_and_frees_the_share_with_the_worker(world: PoolWorld) -> None:
    name = busy(world)
    done = world.handle(events.SessionClosed(world.now, "s1", "reset"))
    stops = [x.reason for x in done if isinstance(x, instructions.StopWorker)]
    assert (session(world, name).state, session(world, name).reason, stops) == ("closed", "reset", ["reset"])
    assert (lease(world, name).state, world.free()) == ("releasing", 400)
    world.settle()
    assert (lease(world, name).state, world.free()) == ("ended", 1000)


def test_a_reset_while_its_lease_drains_does_not_wait_for_the_kernel(world: PoolWorld) -> None:
    name = busy(world)
    world.release(name)
    world.settle()
    world.handle(events.SessionClosed(world.now, "s1", "reset"))
    world.settle()
    assert (lease(world, name).state, lease(world, name).reason) == ("ended", "release")
    assert (session(world, name).reason, world.free()) == ("reset", 1000)


@pytest.mark.parametrize("how", ["reset", "killed", "stopped"])
def test_what_ran_until_the_end_stays_counted(world: PoolWorld, how: str) -> None:
    world.nodes["node1"].stops_kernels = how != "stopped"
    name = busy(world)
    worker = world.nodes["node1"].workers["s1"]
    world.advance(2.0)
    if how == "reset":
        world.handle(events.SessionClosed(world.now, "s1", "reset"))
    elif how == "killed":
        report = world.nodes["node1"].report(worker, world.now)
        del world.nodes["node1"].workers["s1"]
        me = (world.now, "node1", world.nodes["node1"].connection)
        world.handle(events.WorkerExited(*me, "s1", -9, "killed", report))
    else:
        world.release(name)
        world.settle()
        world.advance(world.timers.drain + 1.0)
    world.settle()
    worker.count(world.now)
    ended = [line for line in world.journal if line.kind == "ended"][-1]
    assert ended.data["device_seconds"] == pytest.approx(worker.device_seconds)
    assert ended.data["device_seconds"] == pytest.approx(11.0 if how == "stopped" else 7.0)
    assert (session(world, name).usage.work, session(world, name).usage.kernel) == (
        "",
        "forever" if how != "stopped" else "",
    )


def test_charges_last_until_the_work_does(tmp_path) -> None:
    from gpupool.pool.projects import accounts

    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
    world.connect()
    world.handle(
        events.LimitSet(world.now, LimitRecord("ann", gpu_seconds=10**6, window_seconds=86400), "root")
    )
    name = busy(world, milli=500)
    world.release(name)
    world.settle()
    before = accounts.used_in_window(world.machine.state, "ann", world.now).milli_ms
    world.advance(2.0)
    world.settle()
    draining = accounts.used_in_window(world.machine.state, "ann", world.now).milli_ms
    assert draining - before == 500 * 2000
    world.advance(20.0)
    world.settle()
    held = lease(world, name)
    assert held.ended_at is not None
    used = accounts.used_in_window(world.machine.state, "ann", world.now).milli_ms
    assert used == round(500 * 1000 * (held.ended_at - held.granted_at))
    assert world.ledger is not None
    with world.ledger.engine.connect() as connection:
        from gpupool.ledger.schema import charges
        from sqlalchemy import select

        (row,) = connection.execute(select(charges).where(charges.c.lease_id == name)).mappings().all()
    assert row["milli"] * (row["to_ms"] - row["from_ms"]) == used


def test_a_gang_is_free_when_all_its_parts_have_stopped() -> None:
    world = PoolWorld(nodes={"node1": 1, "node2": 1})
    world.connect("node1")
    world.connect("node2")
    name = world.attach("k1", 800, count=2, nodes="any")
    world.nodes["node2"].workers["s2"].runs(world.now)
    world.live(5.0)
    world.release(name)
    world.settle()
    deliver_reports(world)
    assert [part.state for part in world.machine.state.lease_parts(lease(world, name))] == [
        "ended",
        "releasing",
    ]
    assert (world.free("node1/0"), world.free("node2/0")) == (1000, 200)
    (shown,) = convert.lease_list(world.machine.state, CLOCK, None).leases
    assert (shown.state, shown.work) == ("releasing", "draining")
    world.advance(world.timers.drain + 1.0)
    world.settle()
    assert world.free("node2/0") == 1000
    assert not convert.lease_list(world.machine.state, CLOCK, None).leases
    (named,) = convert.lease_list(world.machine.state, CLOCK, None, [name]).leases
    assert (named.id, named.state) == (name, "ended")


def test_a_lost_node_has_stopped_before_its_shares_are_free(world: PoolWorld) -> None:
    name = busy(world)
    worker = world.nodes["node1"].workers["s1"]
    world.disconnect()
    while lease(world, name).state != "ended":
        world.advance(1.0)
    assert not worker.computes(world.now)


def test_a_worker_that_says_it_drains_is_believed_for_longer_than_its_fence(world: PoolWorld) -> None:
    name = busy(world)
    world.nodes["node1"].workers["s1"].drain = 100.0
    world.release(name)
    world.settle()
    world.live(world.timers.reuse + 10.0)
    assert (lease(world, name).state, world.free()) == ("releasing", 400)
    world.live(100.0)
    assert (lease(world, name).state, world.free()) == ("ended", 1000)


def test_a_resize_ends_nothing(world: PoolWorld) -> None:
    name = busy(world, milli=600)
    world.handle(events.Resized(world.now, name, 300, None))
    world.settle()
    assert (lease(world, name).state, world.free()) == ("attached", 700)
    assert world.nodes["node1"].workers["s1"].work(world.now) == "running"


def test_a_kernel_name_is_its_owners_business(world: PoolWorld) -> None:
    busy(world)
    for viewer, seen in ((None, "forever"), ("ann", "forever"), ("bob", "")):
        (shown,) = convert.lease_list(world.machine.state, CLOCK, viewer).leases
        assert (shown.work, shown.kernel) == ("running", seen)
        (device,) = convert.device_list(world.machine.state, world.timers, world.now, viewer).devices
        assert (device.shares[0].work, device.shares[0].kernel) == ("running", seen)


def test_counters_never_go_back(world: PoolWorld) -> None:
    name = busy(world)
    before = session(world, name).usage.device_seconds
    worker = world.nodes["node1"].workers["s1"]
    worker.device_seconds, worker.kernel_until = 0.0, 0.0
    deliver_reports(world)
    assert session(world, name).usage.device_seconds == before > 0


def test_the_fence_leaves_time_to_drain() -> None:
    with pytest.raises(ValueError, match="drain"):
        Timers(fence=25.0, drain=5.0, reuse=30.0)


def test_limits_count_what_drains() -> None:
    world = PoolWorld(nodes={"node1": 1}, quotas={"ann": Quota(milli=700)})
    world.connect()
    world.release(busy(world))
    world.settle()
    world.request("k2", 200, wait=0.0)
    assert world.answer("k2").reason == "quota"


@pytest.mark.parametrize("seconds", [0.5, 4.0, 8.0])
def test_a_share_is_used_again_only_after_the_fence_and_the_drain_that_was_chosen(seconds: float) -> None:
    timers = Timers().draining(seconds)
    assert timers.drain == seconds
    assert timers.fence + timers.drain < timers.reuse
    assert timers.reuse >= Timers().reuse
