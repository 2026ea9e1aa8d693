"""What follows the state from step to step (the fleet, what leases hold, how nodes stand) says what is said from nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gpupool.model import events
from gpupool.model.state import State
from gpupool.pool.growing.node_stands import NodesStand
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.model.live_view import LiveView
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import live_holdings
from gpupool.pool.projects.project_rules import project_tree
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.pool_world import counting_ids, offered

NODES = 4
COMMANDS = st.one_of(
    st.tuples(st.just("hello"), st.integers(0, NODES - 1), st.integers(1, 3)),
    st.tuples(st.just("gone"), st.integers(0, NODES - 1), st.just(0)),
    st.tuples(st.just("ask"), st.integers(1, 2), st.sampled_from([200, 500, 1000])),
    st.tuples(st.just("release"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("leave"), st.integers(0, NODES - 1), st.just(0)),
    st.tuples(st.just("drain"), st.integers(0, NODES - 1), st.integers(0, 1)),
    st.tuples(st.just("look"), st.integers(0, 1), st.just(0)),
)


class World:
    """A pool whose nodes come with other devices than before, and go."""

    def __init__(self) -> None:
        self.machine = Machine(State(), Timers(return_=0.0), counting_ids())
        self.now = 1000.0
        self.handle(events.Restarted(self.now))
        self.nodes = NodesStand(self.machine.state)

    def handle(self, event: events.Event) -> None:
        self.machine.handle(event)
        self.machine.state.commit()

    def do(self, command: str, first: int, second: int) -> None:
        state = self.machine.state
        self.now += 1.0
        node = f"n{first}"
        if command == "hello":
            devices = tuple(offered(number) for number in range(second))
            hello = events.NodeHello(self.now, node, int(self.now), f"r{self.now}", devices, ())
            self.handle(replace(hello, worker_ports=second % 3))
        elif command == "gone" and node in state.nodes and state.nodes[node].connection is not None:
            connection = state.nodes[node].connection
            assert connection is not None
            self.handle(events.NodeDisconnected(self.now, node, connection))
            self.handle(events.NodeForgotten(self.now, node))
        elif command == "ask":
            self.handle(events.Requested(self.now, "u", f"k{self.now}", second, None, first, wait=5.0))
        elif command == "release" and state.leases:
            lease_id = list(state.leases)[first % len(state.leases)]
            self.handle(events.Released(self.now, lease_id, "exit", close_session=True))
        elif command == "leave" and node in state.nodes and state.nodes[node].connection is not None:
            connection = state.nodes[node].connection
            assert connection is not None
            self.handle(events.NodeLeaving(self.now, node, connection, 60.0))
        elif command == "drain":
            self.handle(events.NodeDrained(self.now, node, bool(second), "", "admin", evict=False))
        elif command == "look":
            self.compare(kept=first)

    def compare(self, kept: int) -> None:
        """The columns of both, with the first ``kept`` devices kept for somebody."""
        state = self.machine.state
        grown = self.machine.view.at(self.now)
        fresh = LiveView(state, self.machine.timers).at(self.now)
        assert list(grown.devices) == list(fresh.devices)
        assert grown.without_port == fresh.without_port
        reserved = frozenset(device.id for device in list(fresh.devices)[:kept])
        one, other = grown.reserving(reserved).fleet, fresh.reserving(reserved).fleet
        assert (one.nodes, one.columns, one.positions) == (other.nodes, other.columns, other.positions)
        assert one.cluster.nodes == other.cluster.nodes
        for name in ("free_milli", "free_mib", "healthy", "kept", "parked"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        for name in ("free_milli", "free_mib", "free_total", "present", "kind"):
            assert np.array_equal(getattr(one.cluster, name), getattr(other.cluster, name)), name
        leases, users = list(state.leases), ["u"]
        assert one.places_of(leases=leases, users=users) == other.places_of(leases=leases, users=users)
        assert grown.held_by("u") == fresh.held_by("u")
        nodes = NodesStand(state)
        for node in (f"n{number}" for number in range(NODES)):
            assert self.nodes.of(node) == nodes.of(node)
        kept_holdings, holdings = live_holdings.of(state), live_holdings.LiveHoldings(state)
        assert kept_holdings.capacity() == holdings.capacity()
        assert kept_holdings.used(1000.0, self.now) == holdings.used(1000.0, self.now)
        tree = project_tree(state)
        standings = (one.standings(tree, {}) for one in (kept_holdings, holdings))
        held, again = ([one.standing(path) for path in tree.paths] for one in standings)
        assert held == again


@example(commands=[("hello", 2, 2), ("hello", 0, 1), ("look", 0, 0), ("hello", 2, 1), ("hello", 2, 2)])
# A drained node falls silent.
@example(commands=[("hello", 1, 1), ("drain", 1, 1), ("look", 0, 0), *[("gone", 0, 0)] * 15])
@given(commands=st.lists(COMMANDS, max_size=40))
def test_whatever_comes_and_goes(commands: list[tuple[str, int, int]]) -> None:
    world = World()
    for command, first, second in commands:
        world.do(command, first, second)
    world.compare(kept=0)
    world.compare(kept=2)
