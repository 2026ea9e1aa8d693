"""A node whose workers may listen on some ports only: when all are taken, new sessions go elsewhere or wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpupool.model import events
from gpupool.model.instructions import TellGranted, TellQueued
from gpupool.node.ports import PortRange
from gpupool.pool.access.validate import BadInputError
from gpupool.pool.api.nodes_service import _hello_event
from gpupool.proto import pool_pb2
from gpupool.scheduler import DeviceView, Held, Outcome, Parked, PoolView, Request, decide
from gpupool.scheduler.model import PlacedShare
from gpupool.scheduler.relocate import Movable, relocation

from tests.support.pool_world import PoolWorld


def device(name: str, *held: Held, kind: str = "A100") -> DeviceView:
    return DeviceView(name, name.split("/")[0], 8192, held=held, kind=kind)


def pool(*devices: DeviceView, **without_port: int) -> PoolView:
    return PoolView(devices, host_room={"a": 65536, "b": 65536}, without_port=without_port)


class TestDecision:
    def test_a_new_session_goes_to_another_node(self):
        """Though it would fit best on the first."""
        full = Held("l1", "ann", 800, 6000)
        nodes = (device("a/0", full), device("b/0"))
        assert decide(pool(*nodes), Request("bob", 200)).shares[0].device_id == "a/0"
        assert decide(pool(*nodes, a=2), Request("bob", 200)).shares[0].device_id == "b/0"

    def test_it_waits_where_there_is_none_and_is_told_the_number(self):
        decision = decide(
            pool(device("a/0"), device("b/0", Held("l1", "ann", 900, 7000)), a=64), Request("bob", 200)
        )
        assert (decision.outcome, decision.reason, decision.wants) == (Outcome.QUEUE, "full", ())
        assert "all 64 ports of node a are taken" in decision.explanation

    def test_without_room_either_it_waits_for_room(self):
        decision = decide(pool(device("a/0", Held("l1", "ann", 900, 7000)), a=64), Request("bob", 200))
        assert "ports" not in decision.explanation
        assert decision.wants == ("a/0",)

    def test_shares_on_several_nodes_need_a_port_on_each(self):
        nodes = (device("a/0"), device("b/0"), device("c/0"))
        shares = decide(pool(*nodes, a=1), Request("bob", 200, count=2, nodes="any")).shares
        assert [share.device_id for share in shares] == ["b/0", "c/0"]
        decision = decide(pool(*nodes, a=1, b=1), Request("bob", 200, count=2, nodes="any"))
        assert decision.outcome is Outcome.QUEUE

    @pytest.mark.parametrize("place", ["device", "host"])
    def test_a_parked_session_has_its_worker_and_goes_on(self, place):
        parked = Parked("s1", ("a/0",), (500,), place)
        assert decide(pool(device("a/0"), a=1), Request("ann", 200, parked=parked)).outcome is Outcome.GRANT

    def test_a_session_on_disk_needs_a_port_as_a_new_one_does(self):
        request = Request("ann", 200, parked=Parked("s1", ("a/0",), (500,), "image"))
        assert decide(pool(device("a/0")), request).outcome is Outcome.GRANT
        decision = decide(pool(device("a/0"), a=1), request)
        assert (decision.outcome, decision.wants) == (Outcome.QUEUE, ())
        assert "the port of node a is taken" in decision.explanation

    def test_no_session_moves_to_a_node_without_a_port(self):
        request = Request("ann", 200, parked=Parked("s1", ("a/0",), (500,), "host"))
        busy = device("a/0", Held("l1", "bob", 1000, 7936))
        assert decide(pool(busy, device("b/0")), request).shares[0].device_id == "b/0"
        assert decide(pool(busy, device("b/0"), b=1), request).outcome is Outcome.QUEUE

    def test_nobody_is_moved_there_to_make_room(self):
        held = (Held("l1", "ann", 500, 3968), Held("l2", "bob", 500, 3968))
        nodes = (device("a/0", held[0]), device("b/0", held[1]))
        movable = {"l1": Movable(PlacedShare("a/0", 500, 3968), 500)}
        assert relocation(pool(*nodes), Request("cid", 1000), movable) is not None
        assert relocation(pool(*nodes, b=1), Request("cid", 1000), movable) is None


class TestPool:
    @pytest.fixture
    def world(self) -> PoolWorld:
        world = PoolWorld(nodes={"node1": 2})
        world.nodes["node1"].worker_ports = 2
        world.connect()
        return world

    def test_a_parked_session_keeps_its_port_until_it_ends(self, world):
        first, second = world.attach("k1", 100), world.attach("k2", 100)
        world.release(first)
        world.settle()
        world.request("k3", 100, user="bob", wait=None)
        told = world.answer("k3")
        assert isinstance(told, TellQueued)
        assert "all 2 ports of node node1 are taken" in told.explanation
        world.release(second, close=True)
        assert isinstance(world.answer("k3"), TellQueued), "its worker has not ended yet"
        world.settle()
        assert isinstance(world.answer("k3"), TellGranted)

    def test_a_session_that_is_parked_goes_on_when_no_port_is_left(self, world):
        first = world.attach("k1", 100)
        parked = world.machine.state.leases[first].session_id
        world.release(first)
        world.settle()
        world.attach("k2", 100)
        world.request("k3", 100, session_id=parked)
        world.settle()
        assert isinstance(world.answer("k3"), TellGranted)

    def test_a_session_whose_client_is_gone_is_closed_in_time_and_makes_room(self, world):
        for key in ("k1", "k2"):
            lease = world.attach(key, 100)
            world.release(lease)
            world.settle()
        world.request("k3", 100, user="bob", wait=None)
        state = world.machine.state
        for name in list(state.sessions):
            gone = world.now - world.timers.client_gone - 1
            state.sessions[name] = replace(state.sessions[name], gone_since=gone)
        world.handle(events.Tick(world.now))
        world.settle()
        assert isinstance(world.answer("k3"), TellGranted)

    def test_a_node_without_a_range_is_not_limited(self, world):
        world.nodes["node1"].worker_ports = 0
        world.connect()
        for number in range(5):
            world.attach(f"k{number}", 100)
        assert len(world.nodes["node1"].workers) == 5


def test_a_node_says_how_many_ports_it_has():
    assert (PortRange().count, PortRange.parse("40000-40063").count, PortRange.parse("40000").count) == (
        0,
        64,
        1,
    )
    hello = pool_pb2.NodeHello(node="gpu1", worker_ports=64)
    assert _hello_event(hello, 1, 0.0).worker_ports == 64
    for wrong in (-1, 65536):
        with pytest.raises(BadInputError, match="worker_ports"):
            _hello_event(pool_pb2.NodeHello(node="gpu1", worker_ports=wrong), 1, 0.0)
