"""A notice counts only when its holder has heard of it: a program must stop to use a share before the share is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.model import events
from gpupool.pool.api import convert
from gpupool.pool.model.timers import Timers

from tests.support.pool_world import PoolWorld, lease

#: Shorter than the time between two renewals.
SHORT = 2.0


def emptied(
    timers: Timers, path: Path | None = None, machines: int = 1, **more: object
) -> tuple[PoolWorld, str]:
    """A world in which somebody has shares of a node that is emptied."""
    world = PoolWorld(path, nodes={f"node{n + 1}": 1 for n in range(machines)}, timers=timers)
    for node in world.nodes:
        world.connect(node)
    name = world.attach("k1", 600, **more)
    world.live(10.0)
    world.handle(events.NodeDrained(world.now, "node1", True, "new fans", "root", evict=True))
    return world, name


def without_renewals(world: PoolWorld, seconds: float) -> None:
    """Time passes for the pool and its nodes; the holder is slow."""
    for _ in range(round(seconds * 2)):
        world.live(0.5, renew=False)


def test_it_waits_for_the_next_renewal() -> None:
    world, name = emptied(Timers(notice=SHORT))
    without_renewals(world, 3.0)
    assert lease(world, name).live
    world.handle(events.Renewed(world.now, (name,)))
    told = convert.notice(lease(world, name), world.now)
    assert told is not None
    assert told.seconds_left == pytest.approx(SHORT / 3)
    without_renewals(world, 1.0)
    assert (lease(world, name).live, lease(world, name).reason) == (False, "drain")


def test_a_holder_that_hears_of_it_in_time_has_no_more_time() -> None:
    timers = Timers()
    world, name = emptied(timers)
    began = world.now
    while lease(world, name).live:
        world.live(0.5)
    assert world.now - began == pytest.approx(timers.notice, abs=1.0)


def test_a_holder_that_is_gone_keeps_nothing_longer_than_without_it() -> None:
    timers = Timers(notice=SHORT)
    world, name = emptied(timers)
    began = world.now
    without_renewals(world, timers.holder - 1.0)
    assert lease(world, name).live
    without_renewals(world, 2.0)
    assert (lease(world, name).live, lease(world, name).reason) == (False, "lost")
    assert world.now - began < timers.holder + 2.0


def test_all_parts_of_a_gang_hear_of_it_together() -> None:
    world, name = emptied(Timers(notice=SHORT), machines=2, count=2, nodes="any")
    parts = [part.id for part in world.machine.state.lease_parts(lease(world, name))]
    assert len(parts) == 2
    without_renewals(world, 3.0)
    assert all(lease(world, part).live for part in parts)
    world.handle(events.Renewed(world.now, (name,)))
    without_renewals(world, 1.0)
    assert not any(lease(world, part).live for part in parts)


def test_after_a_restart_it_waits_for_it_too(tmp_path: Path) -> None:
    world, name = emptied(Timers(notice=8.0), tmp_path / "ledger")
    world.crash()
    world.connect()
    without_renewals(world, 9.0)
    assert lease(world, name).live
    world.handle(events.Renewed(world.now, (name,)))
    without_renewals(world, 4.0)
    assert (lease(world, name).live, lease(world, name).reason) == (False, "drain")
