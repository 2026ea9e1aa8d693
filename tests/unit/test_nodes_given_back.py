"""Borrowed nodes that have gone back: how long the pool knows them, and that nobody is told to look after them."""

from __future__ import annotations

from gpupool.model import events

from tests.support.pool_world import PoolWorld


def gone(*, close: bool) -> PoolWorld:
    """A node that has served a session, and has been given back."""
    world = PoolWorld()
    world.connect()
    world.release(world.attach("k1", 300), close=close)
    world.live(10.0)
    world.disconnect()
    world.handle(events.NodeForgotten(world.now, "node1"))
    return world


def test_one_whose_sessions_are_closed_is_known_until_its_shares_are_free_for_sure() -> None:
    world = gone(close=True)
    assert world.machine.state.nodes["node1"].given_back
    world.advance(world.timers.reuse - 1.0)
    assert "node1" in world.machine.state.nodes
    world.advance(2.0)
    state = world.machine.state
    assert not state.nodes and not state.devices
    assert [session.state for session in state.sessions.values()] == ["closed"]


def test_one_with_a_session_that_somebody_may_ask_for_stays_known() -> None:
    world = gone(close=False)
    world.advance(world.timers.reuse + 1.0)
    assert world.machine.state.nodes["node1"].lost
    world.connect()
    assert not world.machine.state.nodes["node1"].given_back


def test_one_that_is_connected_is_not_given_back() -> None:
    world = PoolWorld()
    world.connect()
    world.handle(events.NodeForgotten(world.now, "node1"))
    assert not world.machine.state.nodes["node1"].given_back
