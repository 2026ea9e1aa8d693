"""What a look at providers goes by: how their nodes stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpupool.pool.growing.node_stands import NodesStand
from gpupool.pool.growing.pool_side import PoolSide
from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.offer import Offer

from tests.support.pool_world import PoolWorld


def test_a_lease_of_several_devices_is_to_go_on_in_one_node(tmp_path: Path) -> None:
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 2})
    world.connect()
    lease = world.attach("k1", 400, count=2)
    other = world.attach("k2", 300)
    stands = NodesStand(world.machine.state).of("node1")
    assert stands is not None
    assert set(stands.leases) == {Ask(lease, 400, None, 2), Ask(other, 300, None, 1)}


def test_a_sick_device_has_no_room(tmp_path: Path) -> None:
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 2})
    world.connect()
    world.attach("k1", 400)
    state = world.machine.state
    state.devices["node1/1"] = replace(state.devices["node1/1"], healthy=False, health_reason="Xid 79")
    stands = NodesStand(state).of("node1")
    assert stands is not None
    assert (stands.devices, stands.free) == (2, (600,))


@pytest.mark.parametrize("held", [{}, {"move_obstacle": "graphs"}, {"place": "image"}])
def test_a_session_that_can_go_on_in_no_other_node_asks_for_none(
    tmp_path: Path, held: dict[str, Any]
) -> None:
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
    world.connect()
    world.release(world.attach("k1", 500))
    world.settle()
    world.attach("k2", 800, user="bob")
    state = world.machine.state
    session = next(one for one in state.sessions.values() if one.state == "parked")
    world.request("k3", 500, session_id=session.id, wait=None)
    state.sessions[session.id] = replace(state.sessions[session.id], **held)
    pool: Any = SimpleNamespace(state=state, now=lambda: world.now)
    assert len(PoolSide(pool).asks()) == (0 if held else 1)


def test_a_session_that_goes_on_asks_only_for_devices_of_its_type(tmp_path: Path) -> None:
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
    world.connect()
    world.release(world.attach("k1", 500))
    world.settle()
    world.attach("k2", 800, user="bob")
    state = world.machine.state
    session = next(one for one in state.sessions.values() if one.state == "parked")
    world.request("k3", 500, session_id=session.id, wait=None)
    pool: Any = SimpleNamespace(state=state, now=lambda: world.now, promise=lambda promised: None)
    side = PoolSide(pool)
    like = state.devices["node1/0"].name
    offers = {
        "same": Offer(like),
        "other": Offer("NVIDIA L4"),
        "unsaid": Offer(),
        "open": Offer(like, sharing="open"),
    }
    side.promise({name: Scale(offer=offer) for name, offer in offers.items()})
    (ask,) = side.asks()
    assert ask.unlike == {"other", "open"}
