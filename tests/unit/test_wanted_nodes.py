"""For which of those that wait providers are asked to bring a node."""

from collections.abc import Sequence

from gpupool.model import events
from gpupool.model.instructions import TellGranted, TellQueued
from gpupool.model.state import key_of
from gpupool.pool.growing.pool_side import PoolSide
from gpupool.scheduler.model import Quota
from gpupool.scheduler.pool_view import Promise

from tests.support.pool_world import PoolWorld


def test_no_node_is_asked_for_while_a_quota_is_used_up() -> None:
    """Neither for a request for which there is no room, nor for one that no node serves which is there."""
    world = PoolWorld(
        nodes={"node1": 1, "job1": 1}, quotas={"ann": Quota(milli=600), "amy": Quota(milli=400)}
    )
    world.connect("node1")
    world.machine.view.promised = (Promise("lab", 1, 8192, "jobs"),)
    world.attach("a", 600)
    world.attach("b", 400, user="amy")
    world.request("a2", 600, wait=None)
    world.request("b2", 400, user="amy", wait=None, pools=("jobs",))
    world.request("c", 1000, user="bob", wait=None)
    assert wanted_nodes(world) == [key_of("bob", "c")]
    world.connect("job1")
    world.settle()
    assert isinstance(world.answer("c"), TellGranted)
    assert not wanted_nodes(world)


def wanted_nodes(world: PoolWorld) -> list[str]:
    """The requests for which providers are asked to bring one."""

    class Pool:
        state = world.machine.state

        def now(self) -> float:
            return world.now

        def apply(self, event: events.Event) -> None:
            world.handle(event)

        def promise(self, promised: Sequence[Promise]) -> None:
            world.machine.view.promised = tuple(promised)

    return [ask.id for ask in PoolSide(Pool()).asks()]


def test_no_node_is_asked_for_while_a_sessions_own_lease_is_on_its_way_out() -> None:
    """It has its devices back in a moment."""
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    world.machine.view.promised = (Promise("lab", 1, 8192, "jobs"),)
    name = world.attach("a", 1000)
    session = world.machine.state.leases[name].session_id
    world.release(name)
    assert world.machine.state.leases[name].holds  # the node has not said that it is over
    world.request("a2", 1000, wait=None, session_id=session)
    assert isinstance(world.answer("a2"), TellQueued)
    assert not wanted_nodes(world)
    world.settle()
    assert isinstance(world.answer("a2"), TellGranted)
