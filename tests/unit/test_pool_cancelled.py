"""A caller that leaves while its lease starts: nothing is held for nobody, whatever comes in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.model import events

from tests.support.pool_world import PoolWorld


@pytest.fixture
def world(tmp_path: Path) -> PoolWorld:
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
    world.connect()
    return world


def leave(world: PoolWorld, key: str = "k1") -> None:
    world.handle(events.Cancelled(world.now, "ann", key))


@pytest.mark.parametrize("reservation", [False, True])
def test_a_lease_whose_caller_left_while_it_started_ends(world: PoolWorld, reservation: bool) -> None:
    world.request("k1", 1000, reservation=reservation)
    leave(world)
    world.settle()
    world.live(12, renew=False)
    assert world.machine.state.leases["l1"].state == "ended"
    assert world.free() == 1000


def test_and_one_whose_caller_left_before_its_answer_came(world: PoolWorld) -> None:
    world.attach("k1", 1000, reservation=True)
    leave(world)
    world.live(12, renew=False)
    assert world.free() == 1000


@pytest.mark.parametrize("attached", [False, True])
def test_and_when_the_pool_dies_before_the_deadline(world: PoolWorld, attached: bool) -> None:
    world.request("k1", 1000, reservation=True)
    leave(world)
    if attached:
        world.settle()
    world.crash()
    world.connect()
    world.settle()
    world.live(40, renew=False)
    assert world.free() == 1000


def test_a_reservation_that_starts_when_the_pool_dies_ends_unless_it_is_asked_for_again(
    world: PoolWorld,
) -> None:
    world.request("k1", 500, reservation=True)
    world.request("k2", 500, reservation=True)
    world.crash()
    world.request("k2", 500, reservation=True)
    world.connect()
    world.settle()
    world.live(60, renew=False)
    held = [lease.key for lease in world.machine.state.leases.values() if lease.live]
    assert held == ["k2"]


@pytest.mark.parametrize("attached", [False, True])
def test_a_caller_that_comes_back_in_time_has_its_reservation(world: PoolWorld, attached: bool) -> None:
    world.request("k1", 1000, reservation=True)
    if attached:
        world.settle()
    leave(world)
    world.advance(2)
    lease_id = world.attach("k1", 1000, reservation=True)
    world.live(120, renew=False)
    lease = world.machine.state.leases[lease_id]
    assert (lease.state, lease.reservation) == ("attached", True)


def test_a_held_reservation_survives_a_restart(world: PoolWorld) -> None:
    world.attach("k1", 1000, reservation=True)
    world.crash()
    world.connect()
    world.settle()
    world.live(120, renew=False)
    assert world.machine.state.leases["l1"].state == "attached"
