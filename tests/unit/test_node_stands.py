"""What a look at providers goes by: how their nodes stand."""

from __future__ import annotations

from pathlib import Path

from gpupool.pool.growing.node_stands import NodesStand
from gpupool.providers.elasticity import Ask

from tests.support.pool_world import PoolWorld


def test_a_lease_of_several_devices_is_to_go_on_in_one_node(tmp_path: Path) -> None:
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 2})
    world.connect()
    lease = world.attach("k1", 400, count=2)
    other = world.attach("k2", 300)
    stands = NodesStand(world.machine.state).of("node1")
    assert stands is not None
    assert set(stands.leases) == {Ask(lease, 400, None, 2), Ask(other, 300, None, 1)}
