"""Whatever happens in whatever order (messages delayed, streams cut, workers killed, the pool killed before or
after a commit, minutes passing, memory that will not move), no device is ever promised, served or computed on beyond its size,
memory of parked sessions included, no host memory beyond its budget, no session has two workers that serve, no
epoch is used twice, no key leads to two leases, and when all is well again every share comes back."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

from gpupool.model import events
from gpupool.pool.leases import parking_rules
from gpupool.pool.model import view
from gpupool.scheduler.model import Quota
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

from tests.support.index_from_records import check_index
from tests.support.pool_world import PoolWorld

NODES = ("node1", "node2", "node3")
USERS = ("ann", "bob")
QUOTAS = {"bob": Quota(milli=900)}
DELIVERED = st.sampled_from((True, True, True, False))
RARELY = st.sampled_from((False, False, False, True))


class PoolStory(RuleBasedStateMachine):
    keys = Bundle("keys")
    world_class = PoolWorld

    @initialize(
        busy=st.lists(st.sampled_from((100, 300, 500, 700)), min_size=1, max_size=4),
        parked=st.integers(0, 2),
        fraction=st.sampled_from((0.0, 0.25, 0.8, 1.0)),
        budget=st.sampled_from((0, 800, 4096, 65536)),
        disk=st.sampled_from((0, 2000, 65536)),
        ports=st.sampled_from((0, 0, 1, 3)),
        devices=st.sampled_from(((2, 1, 0), (1, 1, 1))),
        gang=st.booleans(),
    )
    def start(self, busy, parked, fraction, budget, disk, ports, devices, gang):
        """A pool in the middle of its life: some leases, one of them perhaps on several nodes, some parked sessions."""
        # In memory where possible: what is at stake here is order, not the disk (see test_pool_crash).
        shm = Path("/dev/shm")
        self._directory = tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None)
        path = Path(self._directory.name) / "pool.sqlite"
        self.world = self.world_class(
            path, nodes=dict(zip(NODES, devices, strict=True)), quotas=QUOTAS, total_mib=4096
        )
        self._asked = 0
        for name in NODES:
            self.world.nodes[name].fraction = fraction
            self.world.nodes[name].park_memory_mib = budget
            self.world.nodes[name].park_disk_mib = disk
            self.world.nodes[name].worker_ports = ports
            self.world.connect(name)
        if gang:
            self._asked += 1
            count = 3 if devices == (2, 1, 0) else 2
            self.world.request(f"k{self._asked}", 200, user="ann", wait=None, count=count)
            self.world.settle()
        for milli in busy:
            self._asked += 1
            self.world.request(f"k{self._asked}", milli, user="ann", wait=None)
            self.world.settle()
        for lease in list(self.world.machine.state.leases.values())[:parked]:
            self.world.release(lease.id)
            self.world.settle()

    # ---- holders

    @rule(
        target=keys,
        user=st.sampled_from(USERS),
        size=st.one_of(
            st.tuples(st.sampled_from((200, 333, 500, 700, 1000, 1)), st.none()),
            st.tuples(st.none(), st.sampled_from((700, 1500, 3840, 9999))),
        ),
        count=st.sampled_from((0, 1, 1, 1, 2, 3)),
        nodes=st.sampled_from(("auto", "any", "one")),
        wait=st.sampled_from((0.0, 20.0, None)),
        duration=st.sampled_from((0.0, 0.0, 12.0)),
        reservation=st.sampled_from((False, False, True)),
        delivered=DELIVERED,
    )
    def ask(self, user, size, count, nodes, wait, duration, reservation, delivered):
        self._asked += 1
        key = f"k{self._asked}"
        self.world.request(
            key,
            size[0],
            mib=size[1],
            user=user,
            wait=wait,
            count=count,
            nodes=nodes,
            duration=duration,
            reservation=reservation,
        )
        self._deliver(delivered)
        return multiple((user, key))

    @rule(named=keys)
    def ask_again(self, named):
        """The answer was lost; the same key is sent again."""
        user, key = named
        self.world.request(key, 200, user=user, wait=None)

    @rule(target=keys, index=st.integers(0, 20), milli=st.sampled_from((100, 400, 900)), delivered=DELIVERED)
    def resume(self, index, milli, delivered):
        sessions = [s for s in self.world.machine.state.sessions.values() if s.state != "closed"]
        if not sessions:
            return multiple()
        self._asked += 1
        key = f"k{self._asked}"
        session = sessions[index % len(sessions)]
        self.world.request(key, milli, user=session.user, wait=30.0, session_id=session.id)
        self._deliver(delivered)
        return multiple((session.user, key))

    @rule(named=keys)
    def cancel(self, named):
        self.world.handle(events.Cancelled(self.world.now, *named))

    def _deliver(self, delivered):
        """Mostly the network works: agents reconnect, heartbeats are answered, messages arrive at once."""
        if not delivered:
            return
        for name in NODES:
            node = self.world.nodes[name]
            if node.connection is None:
                self.world.connect(name)
            node.heartbeat(self.world.now)
        self.world.settle()

    def _lease(self, index):
        leases = [lease for lease in self.world.machine.state.leases.values() if lease.holds]
        return leases[index % len(leases)] if leases else None

    @rule(index=st.integers(0, 30), close=RARELY, twice=RARELY, delivered=DELIVERED)
    def release(self, index, close, twice, delivered):
        lease = self._lease(index)
        if lease is not None:
            for _ in range(1 + twice):
                self.world.release(lease.id, "release", close=close)
            self._deliver(delivered)

    @rule(index=st.integers(0, 30), milli=st.sampled_from((50, 250, 600, 1000)), delivered=DELIVERED)
    def resize(self, index, milli, delivered):
        lease = self._lease(index)
        if lease is not None:
            self.world.handle(events.Resized(self.world.now, lease.id, milli, None))
            self._deliver(delivered)

    @rule(index=st.integers(0, 30), delivered=DELIVERED)
    def close_session(self, index, delivered):
        lease = self._lease(index)
        if lease is not None:
            self.world.handle(events.SessionClosed(self.world.now, lease.session_id, "admin"))
            self._deliver(delivered)

    @rule()
    def renew_all(self):
        names = tuple(self.world.machine.state.leases)
        before = {name: self.world.machine.state.leases[name].state for name in names}
        self.world.handle(events.Renewed(self.world.now, names))
        after = {name: self.world.machine.state.leases[name].state for name in names}
        assert before == after, "a renewal never brings a lease back"

    # ---- time and network

    @rule(seconds=st.sampled_from((1.0, 4.0, 11.0, 16.0, 31.0)), renewed=st.booleans())
    def time_passes_in_silence(self, seconds, renewed):
        if renewed:
            self.renew_all()
        self.world.advance(seconds)

    @rule(seconds=st.sampled_from((5.0, 15.0, 40.0)), renew=st.sampled_from((True, True, False)))
    def all_goes_well(self, seconds, renew):
        self.world.live(seconds, renew)

    @rule(seconds=st.sampled_from((10.0, 45.0)))
    def the_pool_stands_still(self, seconds):
        self.world.now += seconds
        self.world.handle(events.Tick(self.world.now))

    @rule(
        name=st.sampled_from(NODES),
        to_node=st.integers(0, 4),
        to_pool=st.integers(0, 4),
        copied=st.integers(0, 2),
    )
    def messages_arrive(self, name, to_node, to_pool, copied):
        for _ in range(to_node):
            self.world.step_to_node(name)
        for _ in range(to_pool):
            self.world.step_to_pool(name)
        for _ in range(copied):
            self.world.step_copy(name)

    @rule(name=st.sampled_from(NODES), answered=st.booleans())
    def heartbeat(self, name, answered):
        if self.world.nodes[name].connection is not None:
            self.world.nodes[name].heartbeat(self.world.now)
            self._deliver(answered)

    @rule(name=st.sampled_from(NODES))
    def stream_breaks(self, name):
        self.world.disconnect(name)

    @rule(name=st.sampled_from(NODES))
    def node_connects(self, name):
        self.world.connect(name)

    @rule(name=st.sampled_from(NODES), index=st.integers(0, 10))
    def worker_dies(self, name, index):
        node = self.world.nodes[name]
        if node.workers:
            node.crash_worker(sorted(node.workers)[index % len(node.workers)], self.world.now)

    @rule(name=st.sampled_from(NODES), index=st.integers(0, 10), stuck=st.booleans())
    def worker_gets_stuck(self, name, index, stuck):
        node = self.world.nodes[name]
        if node.workers:
            node.workers[sorted(node.workers)[index % len(node.workers)]].stuck = stuck

    @rule(name=st.sampled_from(NODES), index=st.integers(0, 10), late=st.booleans())
    def worker_answers_late(self, name, index, late):
        node = self.world.nodes[name]
        if node.workers:
            node.workers[sorted(node.workers)[index % len(node.workers)]].late = late

    @rule(
        name=st.sampled_from(NODES),
        index=st.integers(0, 10),
        seconds=st.sampled_from((1.0, 10.0, math.inf, math.inf)),
        stops=st.booleans(),
    )
    def kernel_runs_long(self, name, index, seconds, stops):
        node = self.world.nodes[name]
        node.stops_kernels = stops
        serving = [worker for worker in node.workers.values() if worker.serves(self.world.now)]
        if serving:
            serving[index % len(serving)].runs(self.world.now, seconds)

    @rule(name=st.sampled_from(NODES), index=st.integers(0, 10), fraction=st.sampled_from((0.0, 0.3, 1.0)))
    def program_allocates(self, name, index, fraction):
        node = self.world.nodes[name]
        serving = [worker for worker in node.workers.values() if worker.serves(self.world.now)]
        if serving:
            serving[index % len(serving)].allocate(fraction)

    @rule(
        name=st.sampled_from(NODES),
        index=st.integers(0, 10),
        park=st.sampled_from(("", "", "managed")),
        move=st.sampled_from(("", "", "graphs")),
    )
    def something_keeps_memory_where_it_is(self, name, index, park, move):
        node = self.world.nodes[name]
        if node.workers:
            worker = node.workers[sorted(node.workers)[index % len(node.workers)]]
            worker.park_obstacle, worker.move_obstacle = park, move

    @rule(cut_off=RARELY)
    def nodes_cannot_reach_each_other(self, cut_off):
        for name in NODES:
            self.world.nodes[name].cut_off = cut_off

    @rule(milli=st.sampled_from((1000, 800)), delivered=DELIVERED)
    def whole_device_is_asked(self, milli, delivered):
        """What parked sessions keep has to go."""
        self._asked += 1
        self.world.request(f"k{self._asked}", milli, user="ann", wait=40.0)
        self._deliver(delivered)

    @rule(
        target=keys,
        milli=st.sampled_from((100, 250, 400)),
        spare=st.integers(0, 1),
        arrived=st.integers(0, 6),
        delivered=DELIVERED,
    )
    def several_nodes_are_asked_for_one_process(self, milli, spare, arrived, delivered):
        """`arrived`: how much of the answer has been heard before the next rule."""
        self._asked += 1
        key = f"k{self._asked}"
        count = len(self.world.machine.state.devices) - spare
        self.world.request(key, milli, user="ann", wait=30.0, count=count, nodes="any")
        for _ in range(arrived):
            self.world.step_to_node(NODES[0]) or self.world.step_to_pool(NODES[0])
        self._deliver(delivered)
        return multiple(("ann", key))

    @rule(first=st.booleans(), delivered=DELIVERED)
    def a_gang_is_parked_and_goes_on_when_one_node_is_taken(self, first, delivered):
        """One part of it has to go elsewhere, or waits; the other never goes on alone."""
        world = self.world
        for lease in list(world.machine.state.leases.values()):
            if lease.gang and lease.live and not lease.part:
                world.release(lease.id)
                self._deliver(True)
        parked = [s for s in world.machine.state.sessions.values() if s.gang and s.state == "parked"]
        if not parked:
            return
        session = parked[0] if first else parked[-1]
        for device_id in session.device_ids:
            if world.free(device_id) >= 800:
                self._asked += 1
                world.request(f"k{self._asked}", world.free(device_id), user="ann", wait=0.0)
                self._deliver(True)
        self._asked += 1
        world.request(f"k{self._asked}", 300, user=session.user, wait=30.0, session_id=session.id)
        self._deliver(delivered)

    @rule(index=st.integers(0, 20), arrived=st.integers(0, 6), delivered=DELIVERED)
    def its_node_is_taken_and_it_goes_on(self, index, arrived, delivered):
        """In another node when it can; `arrived`: how much of that has been heard before the next rule."""
        world = self.world
        parked = [s for s in world.machine.state.sessions.values() if s.state == "parked" and not s.lease_id]
        if not parked:
            return
        session = parked[index % len(parked)]
        for device in list(world.machine.state.devices.values()):
            if device.node == session.node and world.free(device.id) >= 800:
                self._asked += 1
                world.request(f"k{self._asked}", world.free(device.id), user="ann", wait=0.0)
                self._deliver(True)
        self._asked += 1
        world.request(f"k{self._asked}", 300, user=session.user, wait=30.0, session_id=session.id)
        for step in range(arrived):
            name = NODES[step % len(NODES)]
            if not world.step_to_node(name):
                world.step_to_pool(name)
        self._deliver(delivered)

    @rule(name=st.sampled_from(NODES), delivered=DELIVERED)
    def memory_is_moved_for_no_reason(self, name, delivered):
        """As an operator would before maintenance; the rules that choose sessions are not asked."""
        step = self.world.step()
        for session in list(self.world.machine.state.sessions.values()):
            if session.node == name and session.state == "parked" and not session.lease_id:
                room = view.host_rooms(self.world.machine.state)[name]
                if session.place == "device" and room >= view.session_mib(session):
                    parking_rules.begin(step, session.id, "host", "maintenance")
        self.world.deliver(step)
        self._deliver(delivered)

    @rule(name=st.sampled_from(NODES))
    def agent_dies_and_forgets(self, name):
        connection = self.world.nodes[name].connection
        self.world.nodes[name].forget_workers()
        if connection is not None:
            self.world.handle(events.NodeDisconnected(self.world.now, name, connection))
        self.world.connect(name)

    @rule(
        name=st.sampled_from(NODES),
        seconds=st.sampled_from((0.0, 30.0, 110.0)),
        part=st.sampled_from((0.2, 1.0)),
    )
    def agent_is_told_to_end(self, name, seconds, part):
        """It says so, waits, and is followed by the next one, which adopts what is still there."""
        connection = self.world.nodes[name].connection
        if connection is None:
            return
        self.world.handle(events.NodeLeaving(self.world.now, name, connection, seconds))
        self.world.live(max(1.0, seconds * part))
        self.world.connect(name)

    @rule(name=st.sampled_from(NODES))
    def node_is_given_back(self, name):
        """It may be borrowed again."""
        self.world.nodes[name].forget_workers()
        self.world.disconnect(name)
        self.world.handle(events.NodeForgotten(self.world.now, name))

    # ---- the pool dies

    @rule()
    def pool_dies(self):
        self.world.crash()

    @rule(seconds=st.sampled_from([10.0, 100.0, 5000.0]))
    def pool_is_down(self, seconds):
        self.world.crash(seconds)

    @rule(name=st.sampled_from(NODES))
    def pool_and_agent_die(self, name):
        self.world.nodes[name].forget_workers()
        self.world.crash()
        self.world.connect(name)

    @rule(user=st.sampled_from(USERS))
    def pool_dies_before_the_commit(self, user):
        self._asked += 1
        event = events.Requested(self.world.now, user, f"k{self._asked}", 300, None, 1, wait=None)
        self.world.machine.handle(event)
        self.world.crash()
        assert not any(lease.key == event.key for lease in self.world.machine.state.leases.values())

    @rule(target=keys, user=st.sampled_from(USERS))
    def pool_dies_after_the_commit(self, user):
        self._asked += 1
        event = events.Requested(self.world.now, user, f"k{self._asked}", 300, None, 1, wait=None)
        self.world.handle(event, lose_messages=True)
        granted = [x.id for x in self.world.machine.state.leases.values() if x.key == event.key]
        self.world.crash()
        assert [x.id for x in self.world.machine.state.leases.values() if x.key == event.key] == granted
        return multiple((user, event.key))

    @rule()
    def disk_is_full(self):
        """A step that cannot be stored leaves no trace in memory."""
        state = self.world.machine.state
        before = (dict(state.leases), dict(state.sessions), dict(state.requests), dict(state.nodes))
        self.world.machine.handle(events.Requested(self.world.now, "ann", "lost", 100, None, 1, wait=None))
        state.rollback()
        check_index(state)
        assert (dict(state.leases), dict(state.sessions), dict(state.requests), dict(state.nodes)) == before

    def teardown(self):
        """All is well again: what everybody gives back is free in the end."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for name in NODES:
            for worker in world.nodes[name].workers.values():
                worker.stuck = worker.late = False
            world.connect(name)
        world.settle()
        for request in list(world.machine.state.requests.values()):
            world.handle(events.Cancelled(world.now, request.user, request.key))
        for lease in list(world.machine.state.leases.values()):
            world.release(lease.id, "release")
        world.live(world.timers.reuse + 1)
        for device_id in list(world.machine.state.devices):
            assert world.free(device_id) == 1000
        for node in world.nodes.values():
            for worker in node.workers.values():
                assert not worker.serves(world.now)
                session = world.machine.state.sessions[worker.session]
                assert (session.state, session.node, session.place) == ("parked", node.name, worker.place)
                assert session.device_ids == tuple(share.device_id for share in worker.shares)
                assert session.left is None
        assert world.ledger is not None
        world.ledger.close()
        self._directory.cleanup()


TestPoolStory = PoolStory.TestCase
TestPoolStory.settings = settings(
    max_examples=int(os.environ.get("GPUPOOL_STORIES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # The tests of mutants want to know that a mistake is found, not the shortest story of it.
    phases=[Phase.generate] if os.environ.get("GPUPOOL_STORIES") else list(Phase),
)
