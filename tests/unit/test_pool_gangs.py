"""A lease on several nodes lives and dies as one: every way to begin and to end, with simulated nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.model import events, instructions
from gpupool.model.clock import Clock
from gpupool.model.state import SessionRecord, Usage
from gpupool.pool.access import validate
from gpupool.pool.api import convert
from gpupool.pool.leases import gang_view
from gpupool.pool.model.timers import Timers
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.sentences import NOTHING

from tests.support.pool_world import PoolWorld

GANG = {"count": 2}
PART = SessionRecord("s1", "ann", "", "", "b", ("b/0",), "")


@pytest.fixture
def world(tmp_path: Path) -> PoolWorld:
    """Two nodes of one device each; sessions keep half of their shares. What takes an hour takes two minutes."""
    timers = Timers(client_gone=120.0, remember=120.0)
    world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1, "node2": 1}, timers=timers)
    for name in world.nodes:
        world.nodes[name].fraction = 0.5
        world.connect(name)
    return world


def leases(world: PoolWorld) -> dict[str, str]:
    return {lease.id: lease.state for lease in world.machine.state.leases.values()}


def sessions(world: PoolWorld) -> dict[str, str]:
    return {session.id: session.state for session in world.machine.state.sessions.values()}


def free(world: PoolWorld) -> tuple[int, int]:
    return world.free("node1/0"), world.free("node2/0")


def deliver(world: PoolWorld, node: str) -> None:
    """Everything under way to and from one node."""
    while world.step_to_node(node) or world.step_to_pool(node) or world.step_copy(node):
        pass


def grant(world: PoolWorld, lease_id: str):
    return convert.grant(world.machine.state, world.machine.state.leases[lease_id])


class TestBeginning:
    def test_the_holder_is_told_when_all_workers_serve(self, world):
        world.request("k1", 500, **GANG)
        deliver(world, "node1")
        assert not world.told
        assert set(leases(world).values()) == {"starting"}
        deliver(world, "node2")
        assert isinstance(world.answer("k1"), instructions.TellGranted)
        assert leases(world) == {"l1": "attached", "l2": "attached"}
        assert free(world) == (500, 500)

    def test_the_grant_names_every_worker_and_the_first_as_ever(self, world):
        answer = grant(world, world.attach("k1", 500, **GANG))
        assert [share.device_id for share in answer.shares] == ["node1/0", "node2/0"]
        assert [(w.session_id, w.epoch, w.address, w.devices) for w in answer.workers] == [
            ("s1", 1, "node1:1", 1),
            ("s2", 1, "node2:1", 1),
        ]
        assert (answer.session_id, answer.worker_address) == ("s1", "node1:1")
        assert answer.worker_token == answer.workers[0].token

    def test_one_worker_that_cannot_start_takes_the_other_along_and_its_reason_is_told(self, world):
        world.request("k1", 500, **GANG)
        deliver(world, "node1")
        world.nodes["node2"].to_node.clear()
        world.handle(events.WorkerFailed(world.now, "node2", 2, "s2", 1, "no such driver"))
        world.settle()
        assert world.answer("k1").reason == "worker-failed"
        assert "no such driver" in world.answer("k1").explanation
        assert set(sessions(world).values()) == {"closed"}
        assert free(world) == (1000, 1000)
        assert not world.nodes["node1"].workers

    def test_one_worker_that_never_starts_is_given_up_with_the_other(self, world):
        world.request("k1", 500, **GANG)
        deliver(world, "node1")
        world.nodes["node2"].to_node.clear()
        world.live(world.timers.start + 40)
        assert world.answer("k1").reason == "worker-failed"
        assert free(world) == (1000, 1000)

    def test_a_caller_that_leaves_is_not_kept_waiting_for(self, world):
        world.request("k1", 500, **GANG)
        world.handle(events.Cancelled(world.now, "ann", "k1"))
        world.settle()
        world.live(world.timers.claim + 5, renew=False)
        assert free(world) == (1000, 1000)

    def test_the_same_key_leads_to_the_same_lease(self, world):
        first = world.attach("k1", 500, **GANG)
        assert world.attach("k1", 500, **GANG) == first
        assert free(world) == (500, 500)

    def test_a_repeated_word_of_one_worker_is_not_the_other_ones(self, world):
        world.request("k1", 500, **GANG)
        deliver(world, "node1")
        connection = world.nodes["node1"].connection
        world.handle(events.WorkerStarted(world.now, "node1", connection, "s1", 1, "node1:1"))
        assert leases(world) == {"l1": "starting", "l2": "starting"}

    def test_a_worker_that_ends_before_the_other_is_ready(self, world):
        world.request("k1", 500, **GANG)
        deliver(world, "node1")
        world.nodes["node1"].crash_worker("s1", world.now)
        world.settle()
        assert isinstance(world.answer("k1"), instructions.TellRefused)
        assert free(world) == (1000, 1000)

    def test_a_worker_that_ended_unheard_of_is_started_again(self, world):
        """The stream breaks, the worker dies, the agent forgets to say so: the whole begins with a living one."""
        world.request("k1", 500, **GANG)
        deliver(world, "node1")
        world.disconnect("node1")
        del world.nodes["node1"].workers["s1"]
        world.connect("node1")
        assert leases(world)["l1"] == "starting"
        world.settle()
        assert set(world.nodes["node1"].workers) == {"s1"}
        assert isinstance(world.answer("k1"), instructions.TellGranted)


class TestQueue:
    def test_it_waits_with_a_reason_and_is_served_when_both_nodes_have_room(self, world):
        first = world.attach("k1", 700, **GANG)
        world.request("k2", 500, user="bob", wait=None, **GANG)
        queued = world.answer("k2")
        assert "0.5 of a GPU on each of 2 devices on up to 2 nodes is asked" in queued.explanation
        assert "ann holds 0.70" in queued.explanation
        world.release(first, close=True)
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)
        assert free(world) == (500, 500)

    def test_small_requests_do_not_starve_it(self, world):
        """Room that one node has already is kept until the other has it, too."""
        alone = world.attach("k1", 700, count=1)
        world.request("k2", 500, user="bob", wait=None, **GANG)
        world.request("k3", 300, user="eve", wait=None)
        assert isinstance(world.answer("k3"), instructions.TellQueued)
        world.release(alone, close=True)
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)
        assert isinstance(world.answer("k3"), instructions.TellGranted)


class TestEnding:
    def test_released_as_a_whole_and_parked_on_both_nodes(self, world):
        world.release(world.attach("k1", 500, **GANG))
        assert leases(world) == {"l1": "releasing", "l2": "releasing"}
        world.settle()
        assert leases(world) == {"l1": "ended", "l2": "ended"}
        assert sessions(world) == {"s1": "parked", "s2": "parked"}
        assert free(world) == (1000, 1000)

    def test_closed_as_a_whole(self, world):
        world.attach("k1", 500, **GANG)
        world.handle(events.SessionClosed(world.now, "s1", "exit"))
        world.settle()
        assert set(sessions(world).values()) == {"closed"}
        assert not any(node.workers for node in world.nodes.values())

    def test_parked_and_then_closed_as_a_whole(self, world):
        world.release(world.attach("k1", 500, **GANG))
        world.settle()
        world.handle(events.SessionClosed(world.now, "s1", "exit"))
        world.settle()
        assert not any(node.workers for node in world.nodes.values())

    def test_the_first_part_is_renewed_for_all(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        world.live(60)
        assert set(leases(world).values()) == {"attached"}
        for _ in range(6):
            world.live(5, renew=False)
            world.handle(events.Renewed(world.now, ("l2",)))
        assert lease_id == "l1"
        assert set(leases(world).values()) == {"ended"}, "the second is not the holder's to renew"

    def test_its_time_is_over_on_all_nodes(self, world):
        world.attach("k1", 500, duration=12.0, **GANG)
        world.live(13)
        assert {lease.reason for lease in world.machine.state.leases.values()} == {"deadline"}
        assert free(world) == (1000, 1000)

    def test_one_worker_that_dies_takes_the_whole_along(self, world):
        world.attach("k1", 500, **GANG)
        world.nodes["node2"].crash_worker("s2", world.now)
        world.settle()
        assert sessions(world) == {"s1": "closed", "s2": "closed"}
        assert {s.reason for s in world.machine.state.sessions.values()} == {"lost"}
        assert free(world) == (1000, 1000)
        assert not world.nodes["node1"].workers

    def test_a_node_that_dies_ends_the_whole_and_the_others_share_comes_back(self, world):
        world.attach("k1", 500, **GANG)
        world.disconnect("node2")
        world.live(world.timers.reuse + 5)
        assert {lease.reason for lease in world.machine.state.leases.values()} == {"lost"}
        assert world.free("node1/0") == 1000
        assert sessions(world) == {"s1": "parked", "s2": "lost"}
        view = convert.session_list(world.machine.state, world.now, None).sessions
        assert [(one.id, one.state, list(one.nodes)) for one in view] == [("s1", "lost", ["node1", "node2"])]

    def test_a_node_that_comes_back_brings_the_whole_back(self, world):
        world.attach("k1", 500, **GANG)
        world.disconnect("node2")
        world.live(world.timers.reuse + 5)
        world.request("k2", 500, session_id="s1", wait=None)
        assert "node2" in world.answer("k2").explanation
        world.connect("node2")
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)

    def test_a_node_that_stays_away_ends_the_sessions_of_the_others(self, world):
        world.attach("k1", 500, **GANG)
        world.disconnect("node2")
        world.live(world.timers.reuse + world.timers.client_gone + 10)
        assert sessions(world) == {"s1": "closed", "s2": "closed"}
        assert not world.nodes["node1"].workers

    def test_what_ended_long_ago_is_forgotten_as_a_whole(self, world):
        world.release(world.attach("k1", 500, **GANG), close=True)
        world.settle()
        world.live(world.timers.remember + 10)
        assert (leases(world), sessions(world)) == ({}, {})


class TestGoingOn:
    @pytest.fixture
    def parked(self, world) -> PoolWorld:
        world.release(world.attach("k1", 500, **GANG))
        world.settle()
        return world

    def test_as_a_whole_where_it_was_with_higher_epochs(self, parked):
        answer = grant(parked, parked.attach("k2", 500, session_id="s1"))
        assert [(w.session_id, w.epoch) for w in answer.workers] == [("s1", 2), ("s2", 2)]
        assert not answer.new_session

    def test_named_by_any_of_its_sessions(self, parked):
        assert grant(parked, parked.attach("k2", 500, session_id="s2")).session_id == "s1"

    def test_not_while_one_node_has_no_room(self, parked):
        alone = parked.attach("k2", 800, user="bob")
        parked.request("k3", 500, session_id="s1", wait=None)
        assert isinstance(parked.answer("k3"), instructions.TellQueued)
        assert sessions(parked)["s1"] == sessions(parked)["s2"] == "parked"
        parked.release(alone, close=True)
        parked.settle()
        assert isinstance(parked.answer("k3"), instructions.TellGranted)

    def test_with_another_number_of_devices_is_refused(self, parked):
        parked.request("k2", 500, session_id="s1", count=1)
        assert "ask with -n 2" in parked.answer("k2").explanation

    def test_when_one_part_does_not_fit_its_share_neither_begins(self, parked):
        """The worker of the second part keeps more than the pool has heard of."""
        parked.nodes["node2"].workers["s2"].keeps = (3500,)
        parked.request("k2", 400, session_id="s1")
        parked.settle()
        refused = parked.answer("k2")
        assert (refused.reason, sessions(parked)) == ("bad-share", {"s1": "parked", "s2": "parked"})
        assert "more than the share that was asked" in refused.explanation
        assert free(parked) == (1000, 1000)

    def test_memory_of_one_part_leaves_for_others_and_comes_back(self, parked):
        for name in parked.nodes:
            parked.nodes[name].park_memory_mib = 8192
            parked.connect(name)
        parked.settle()
        whole = parked.attach("k2", 1000, user="bob", wait=None)
        assert [s.place for s in parked.machine.state.sessions.values()][:2].count("host") == 1
        parked.release(whole, close=True)
        parked.settle()
        parked.attach("k3", 500, session_id="s1", wait=None)
        assert [s.place for s in parked.machine.state.sessions.values()][:2] == ["device", "device"]

    @pytest.mark.parametrize(("connected", "expected"), [(True, "parked"), (False, "closed")])
    def test_a_client_that_is_connected_to_one_worker_keeps_all(self, parked, connected, expected):
        usage = Usage(memory_used=(0,), client_connected=connected)
        for _ in range(int(parked.timers.client_gone / 5) + 2):
            parked.advance(5)
            for name, session in (("node1", "s1"), ("node2", "s2")):
                said = usage if name == "node1" else Usage(memory_used=(0,))
                worker = events.ReportedWorker(session, 1, "parked", f"{name}:1", said)
                beat = events.NodeHeartbeat(parked.now, name, parked.nodes[name].connection, 0, (worker,))
                parked.handle(beat)
        assert set(sessions(parked).values()) == {expected}


class TestResize:
    def test_all_parts_change_together(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        world.handle(events.Resized(world.now, lease_id, 800, None))
        deliver(world, "node1")
        assert free(world) == (200, 200)
        assert not isinstance(world.told[-1], instructions.TellResized)
        deliver(world, "node2")
        assert world.told[-1] == instructions.TellResized("l1", "", NOTHING)
        assert [share.share.milli for share in grant(world, lease_id).shares] == [800, 800]

    def test_when_one_node_has_no_room_none_changes(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        other = world.attach("k2", 400, user="bob")
        before = free(world)
        world.handle(events.Resized(world.now, lease_id, 800, None))
        assert world.told[-1].reason == "full"
        assert free(world) == before
        assert other

    def test_when_one_worker_refuses_the_others_have_their_old_size_again(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        world.nodes["node2"].workers["s2"].keeps = (3900,)
        world.handle(events.Resized(world.now, lease_id, 300, None))
        deliver(world, "node1")
        assert world.nodes["node1"].workers["s1"].shares[0].milli == 300
        assert free(world) == (500, 500), "the room for the old size is kept"
        deliver(world, "node2")
        assert (world.told[-1].lease_id, world.told[-1].reason) == ("l1", "in-use")
        world.settle()
        assert world.nodes["node1"].workers["s1"].shares[0].milli == 500
        assert free(world) == (500, 500)
        world.handle(events.Resized(world.now, lease_id, 600, None))
        world.settle()
        assert free(world) == (400, 400)

    def test_a_refusal_that_comes_first_takes_the_rest_back_too(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        world.nodes["node2"].workers["s2"].keeps = (3900,)
        world.handle(events.Resized(world.now, lease_id, 300, None))
        deliver(world, "node2")
        world.settle()
        assert world.nodes["node1"].workers["s1"].shares[0].milli == 500
        assert {lease.resize for lease in world.machine.state.leases.values()} == {None}

    def test_what_one_part_has_taken_too_much_stays_taken_until_it_is_given_back(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        world.handle(events.Resized(world.now, lease_id, 800, None))
        deliver(world, "node1")
        node = world.nodes["node2"]
        order = node.to_node.pop()
        world.handle(
            events.LeaseApplied(
                world.now, "node2", node.connection, "s2", 1, False, "its disk is full", order.request
            )
        )
        assert (world.told[-1].lease_id, world.told[-1].reason) == ("l1", "worker-failed")
        assert free(world) == (200, 500), "the first worker still serves the larger share"
        world.settle()
        assert free(world) == (500, 500)

    def test_a_part_that_did_not_answer_is_waited_for(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        world.nodes["node2"].workers["s2"].late = True
        world.handle(events.Resized(world.now, lease_id, 800, None))
        world.settle()
        assert (world.told[-1].lease_id, world.told[-1].reason) == ("l1", "worker-failed")
        assert [share.share.milli for share in grant(world, lease_id).shares] == [500, 500]
        assert free(world) == (200, 200)
        world.nodes["node2"].workers["s2"].late = False
        world.live(world.timers.heartbeat)
        assert [share.share.milli for share in grant(world, lease_id).shares] == [800, 800]
        assert {lease.resize for lease in world.machine.state.leases.values()} == {None}

    def test_a_pool_that_dies_in_between_carries_it_through(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        world.handle(events.Resized(world.now, lease_id, 300, None))
        deliver(world, "node1")
        world.crash()
        for name in world.nodes:
            world.connect(name)
        world.settle()
        assert {lease.shares[0].milli for lease in world.machine.state.leases.values()} == {300}
        assert free(world) == (700, 700)


class TestThePoolDies:
    def test_while_it_is_attached_and_nothing_happens(self, world):
        lease_id = world.attach("k1", 500, **GANG)
        world.crash()
        for name in world.nodes:
            world.connect(name)
        world.settle()
        world.live(40)
        assert set(leases(world).values()) == {"attached"}
        assert [w.address for w in grant(world, lease_id).workers] == ["node1:1", "node2:1"]

    def test_while_one_worker_is_ready_and_the_caller_asks_again(self, world):
        world.request("k1", 500, wait=None, **GANG)
        deliver(world, "node1")
        world.crash()
        world.request("k1", 500, wait=None, **GANG)
        world.connect("node1")
        deliver(world, "node1")
        assert set(leases(world).values()) == {"starting"}
        world.connect("node2")
        world.settle()
        assert isinstance(world.answer("k1"), instructions.TellGranted), "the second is started now"
        world.live(40)
        assert free(world) == (500, 500)

    def test_and_a_worker_with_it_the_whole_is_lost(self, world):
        world.attach("k1", 500, **GANG)
        world.nodes["node2"].crash_worker("s2", world.now)
        world.crash()
        for name in world.nodes:
            world.connect(name)
        world.settle()
        world.live(40)
        assert set(sessions(world).values()) == {"closed"}
        assert free(world) == (1000, 1000)


def test_people_see_one_lease_and_one_session(world):
    world.attach("k1", 500, label="train.py", **GANG)
    clock = Clock(offset=0.0)
    (lease,) = convert.lease_list(world.machine.state, clock, None).leases
    assert (lease.id, lease.session_id, lease.state) == ("l1", "s1", "attached")
    assert [share.device_id for share in lease.shares] == ["node1/0", "node2/0"]
    (session,) = convert.session_list(world.machine.state, world.now, None).sessions
    assert (list(session.device_ids), session.lease_id) == (["node1/0", "node2/0"], "l1")
    devices = convert.device_list(world.machine.state, world.timers, world.now, None).devices
    assert [(d.id, d.shares[0].lease_id, d.shares[0].session_id) for d in devices] == [
        ("node1/0", "l1", "s1"),
        ("node2/0", "l1", "s1"),
    ]


def test_the_usage_of_all_workers_is_one(world):
    """A worker that has not reported yet uses nothing, and the figures of the next keep their place."""
    one = replace(PART, usage=Usage(kernels=3, idle_seconds=9.0, state="attached"), device_ids=("a/0", "a/1"))
    two = replace(PART, usage=Usage(kernels=4, memory_used=(7,), in_flight=True, state="fenced"))
    whole = gang_view.usage([one, two])
    assert (whole.kernels, whole.memory_used, whole.idle_seconds) == (7, (0, 0, 7), 0.0)
    assert (whole.in_flight, whole.state) == (True, "fenced")
    assert gang_view.usage([one]) is one.usage


def test_of_several_workers_the_one_that_drains_is_told(world):
    one = replace(
        PART, usage=Usage(work="running", kernel="a", work_seconds=99.0, failure=700, failed_kernel="a")
    )
    two = replace(PART, usage=Usage(work="draining", kernel="b", work_seconds=1.0))
    three = replace(PART, usage=Usage(work="draining", kernel="c", work_seconds=2.0))
    whole = gang_view.usage([one, two, three])
    assert (whole.work, whole.kernel, whole.work_seconds) == ("draining", "c", 2.0)
    assert (whole.failure, whole.failed_kernel) == (700, "a")
    assert gang_view.usage([replace(PART, usage=Usage()), replace(PART, usage=Usage())]).work == ""


def test_a_caller_that_does_not_know_of_several_nodes_gets_one():
    message = pb.RequestLease(idempotency_key="k1", milli=500, count=2)
    assert validate.request(message, "ann", 0.0).nodes == "one"
    message.nodes = "any"
    assert validate.request(message, "ann", 0.0).nodes == "any"
    message.nodes = "all"
    with pytest.raises(validate.BadInputError, match=r"nodes .*'all'"):
        validate.request(message, "ann", 0.0)
