"""A node whose agent has been told to end: its sessions go on elsewhere, or wait on its disk for the next agent."""

from __future__ import annotations

import pytest
from gpupool.model import events
from gpupool.pool.api import convert

from tests.support.pool_world import PoolWorld, lease, session


@pytest.fixture
def world() -> PoolWorld:
    world = PoolWorld(nodes={"node1": 1})
    world.nodes["node1"].park_disk_mib = 8000
    world.connect()
    return world


def leave(world: PoolWorld, seconds: float = 110.0, name: str = "node1") -> None:
    node = world.nodes[name]
    assert node.connection is not None
    world.handle(events.NodeLeaving(world.now, name, node.connection, seconds))
    world.settle()


def parked(world: PoolWorld, key: str = "k1") -> str:
    name = world.attach(key, 400)
    world.release(name)
    world.settle()
    return name


def test_it_takes_no_new_leases_and_says_why(world: PoolWorld) -> None:
    leave(world)
    world.request("k1", 400, wait=60.0)
    assert "node node1 is drained (its agent is ending)" in world.answer("k1").explanation
    (node,) = convert.node_list(world.machine.state, world.now).nodes
    assert (node.drained, node.drain_reason) == (True, "its agent is ending")


def test_no_administrator_is_asked_to_take_it_in_again(world: PoolWorld) -> None:
    leave(world)
    world.request("k1", 400, wait=60.0)
    decision = next(iter(world.machine.state.requests.values())).decision
    assert decision is not None and decision.reason == "no-node"
    assert "ask-admin" not in [help.action for help in decision.helps]


def test_its_next_agent_takes_leases_again(world: PoolWorld) -> None:
    leave(world)
    world.disconnect()
    world.connect()
    world.attach("k1", 400)


def test_what_an_administrator_drained_stays_drained(world: PoolWorld) -> None:
    world.handle(events.NodeDrained(world.now, "node1", True, "new fans", "root"))
    leave(world)
    world.connect()
    (node,) = convert.node_list(world.machine.state, world.now).nodes
    assert (node.drained, node.drain_reason) == (True, "new fans")


@pytest.mark.parametrize(("seconds", "notice"), [(110.0, 30.0), (30.0, 10.0)])
def test_leases_end_after_a_notice_that_leaves_time_for_their_memory(
    world: PoolWorld, seconds: float, notice: float
) -> None:
    name = world.attach("k1", 400)
    leave(world, seconds)
    assert lease(world, name).notice.until - world.now == pytest.approx(notice)
    while lease(world, name).live:
        world.live(1.0)
    assert lease(world, name).reason == "drain"


def test_a_session_goes_on_in_another_node_when_its_holder_asks_again() -> None:
    world = PoolWorld(nodes={"node1": 1, "node2": 1})
    world.nodes["node1"].park_disk_mib = 8000
    for name in world.nodes:
        world.connect(name)
    first = world.attach("k1", 400)
    here = lease(world, first).node
    leave(world, name=here)
    while lease(world, first).live:
        world.live(1.0)
    again = world.attach("k2", 400, session_id=lease(world, first).session_id)
    assert lease(world, again).node != here


def test_a_parked_session_that_nobody_asks_for_waits_on_disk(world: PoolWorld) -> None:
    name = parked(world)
    world.live(6.0)
    leave(world)
    world.live(1.0)
    assert session(world, name).place == "image"
    assert not world.nodes["node1"].workers
    world.nodes["node1"].forget_workers()
    world.connect()
    world.attach("k2", 400, session_id=lease(world, name).session_id)
    assert session(world, name).state == "attached"


def test_a_session_whose_holder_finds_no_other_node_goes_to_disk_before_it_is_too_late(
    world: PoolWorld,
) -> None:
    name = parked(world)
    leave(world)
    world.request("k2", 400, session_id=lease(world, name).session_id, wait=600.0)
    world.live(70.0)
    assert session(world, name).place == "device"
    world.live(12.0)
    assert session(world, name).place == "image"


def test_what_the_disk_has_no_room_for_stays(world: PoolWorld) -> None:
    world.nodes["node1"].park_disk_mib = 1000
    world.connect()
    first, second = parked(world, "k1"), parked(world, "k2")
    world.live(6.0)
    leave(world)
    world.live(2.0)
    places = {session(world, first).place, session(world, second).place}
    assert places == {"image", "device"}


def test_what_an_image_cannot_carry_stays(world: PoolWorld) -> None:
    name = parked(world)
    world.nodes["node1"].workers[lease(world, name).session_id].move_obstacle = "mapped"
    world.live(6.0)
    leave(world)
    world.live(2.0)
    assert session(world, name).place == "device"
