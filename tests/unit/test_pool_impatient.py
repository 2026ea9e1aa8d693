"""Who does not wait leaves nothing behind in the queue."""

from __future__ import annotations

from gpupool.model.instructions import TellRefused

from tests.support.pool_world import PoolWorld


def test_a_request_that_was_refused_at_once_keeps_no_device_from_others() -> None:
    world = PoolWorld(nodes={"node1": 2})
    world.connect()
    world.attach("k1", 500, user="bob")
    world.request("k2", 900, user="bob", count=2)
    assert isinstance(world.answer("k2"), TellRefused)
    world.attach("k3", 100)
