"""Memory of parked sessions: who has to leave for whom, what it may take in the host, and where it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.model import events, instructions
from gpupool.model.instructions import ApplyLease, ParkMemory, StartWorker, StopWorker
from gpupool.pool.api import convert
from gpupool.pool.leases import parking_rules
from gpupool.pool.model.view import pool_view
from gpupool.scheduler import DeviceView, Held, Outcome, Parked, PoolView, Request, decide
from gpupool.scheduler.evict import make_room
from gpupool.scheduler.model import PlacedShare
from gpupool.sentences import obstacles

from tests.support.pool_world import PoolWorld, offered

USABLE = 8192 - 256


@pytest.fixture
def world() -> PoolWorld:
    """One device of 7936 usable MiB; a session keeps all of its share."""
    world = PoolWorld(nodes={"node1": 1})
    world.nodes["node1"].fraction = 1.0
    world.connect()
    return world


@pytest.fixture
def pair() -> PoolWorld:
    """Two nodes of one device each."""
    world = PoolWorld(nodes={"node1": 1, "node2": 1})
    for name in world.nodes:
        world.nodes[name].fraction = 1.0
        world.connect(name)
    return world


def park(world: PoolWorld, key: str, milli: int, user: str = "ann") -> str:
    """A parked session that keeps `milli` of a device in memory; its id."""
    lease_id = world.attach(key, milli, user=user)
    world.release(lease_id)
    world.settle()
    world.now += 1.0
    return world.machine.state.leases[lease_id].session_id


def session(world: PoolWorld, session_id: str):
    return world.machine.state.sessions[session_id]


def orders(world: PoolWorld, kind: type, node: str = "node1") -> list:
    return [item for item in world.nodes[node].to_node if isinstance(item, kind)]


def device(*held: Held, free_milli: int = 1000) -> DeviceView:
    taken = Held("l1", "eve", 1000 - free_milli, 0)
    return DeviceView("n/0", "n", 8192, held=(taken, *held))


def kept(name: str, mib: int, *, since: float = 0.0, whole: int = 0, **more) -> Held:
    return Held("", "ann", 0, mib, session_id=name, session_mib=whole or mib, since=since, **more)


class TestWhoLeaves:
    def room(self, need: int, *held: Held, host_room: int = 100_000):
        view = device(*held)
        eviction = make_room([(view, PlacedShare("n/0", 100, view.free_mib + need))], host_room)
        return None if eviction is None else tuple(h.session_id for h in eviction.victims)

    def test_the_fewest_bytes_that_make_room(self):
        many = (kept("a", 3000), kept("b", 1000), kept("c", 700), kept("d", 500))
        assert self.room(1100, *many) == ("c", "d")
        assert self.room(1000, *many) == ("b",)
        assert self.room(2500, *many) == ("a",)

    def test_among_equals_who_has_been_parked_the_longest(self):
        assert self.room(500, kept("a", 500, since=9.0), kept("b", 500, since=3.0)) == ("b",)

    def test_a_session_of_several_devices_counts_whole(self):
        assert self.room(500, kept("a", 500, whole=4000), kept("b", 900)) == ("b",)

    def test_nobody_when_all_that_can_leave_is_not_enough(self):
        assert self.room(600, kept("a", 500)) is None
        assert self.room(400, kept("a", 500, stays=obstacles.because("managed"))) is None

    def test_nobody_when_compute_is_missing_too(self):
        view = device(kept("a", 5000), free_milli=50)
        assert make_room([(view, PlacedShare("n/0", 100, USABLE))], 100_000) is None

    def test_nobody_whom_host_memory_has_no_room_for(self):
        assert self.room(400, kept("a", 900), kept("b", 500), host_room=600) == ("b",)
        assert self.room(400, kept("a", 900), kept("b", 500), host_room=300) is None

    def test_who_leaves_already_is_waited_for_before_others_are_told(self):
        assert self.room(500, kept("a", 500, leaving=True), kept("b", 500)) == ()
        assert self.room(700, kept("a", 500, leaving=True), kept("b", 500)) == ("b",)

    def test_one_of_very_many_or_the_longest_parked_and_none_in_vain(self):
        many = [kept(f"s{i:02}", 100 + i, since=float(i)) for i in range(40)]
        assert self.room(139, *many) == ("s39",)
        chosen = self.room(1000, *many)
        assert chosen is not None
        total = sum(held.mib for held in many if held.session_id in chosen)
        assert 1000 <= total < 1000 + 110


class TestRoomIsMade:
    def test_for_a_request_that_would_fit_but_for_parked_memory(self, world):
        first = park(world, "k1", 400)
        world.request("k2", 1000, user="bob")
        assert [(o.session_id, o.place) for o in orders(world, ParkMemory)] == [(first, "host")]
        told = world.answer("k2")
        assert isinstance(told, instructions.TellQueued)
        assert told.explanation == "moving 3.1 GiB of 1 parked session to host memory to make room on node1/0"
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)
        assert session(world, first).place == "host"

    def test_without_waiting_only_for_that(self, world):
        """A request that would not wait for other people waits for room that is being made."""
        park(world, "k1", 400)
        world.request("k2", 1000, user="bob", wait=0.0)
        world.nodes["node1"].to_node.clear()  # the answer takes its time
        world.live(60)
        assert isinstance(world.answer("k2"), instructions.TellQueued)

    def test_of_no_more_than_is_needed(self, world):
        small, _ = park(world, "k1", 200), park(world, "k2", 500)
        world.request("k3", 500, user="bob")
        assert [o.session_id for o in orders(world, ParkMemory)] == [small]

    def test_and_nobody_leaves_when_it_fits_beside(self, world):
        park(world, "k1", 400)
        world.attach("k2", 600, user="bob")
        assert session(world, "s1").place == "device"

    def test_a_smaller_request_behind_does_not_take_the_room_that_was_made(self, world):
        park(world, "k1", 400)
        world.request("k2", 1000, user="bob", wait=None)
        world.request("k3", 100, user="cat", wait=None)
        assert "kept for a request that waits longer" in world.answer("k3").explanation
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)

    def test_a_share_that_quota_forbids_moves_nobody(self, world):
        from gpupool.scheduler.model import Quota

        world.machine.quotas = {"bob": Quota(milli=500)}
        park(world, "k1", 400)
        world.request("k2", 1000, user="bob", wait=10.0)
        assert world.answer("k2").reason == "quota"
        assert not orders(world, ParkMemory)


class TestAShareThatGrows:
    def test_has_parked_memory_leave_and_fits_a_moment_later(self, world):
        park(world, "k1", 400)
        lease_id = world.attach("k2", 200, user="bob")
        world.handle(events.Resized(world.now, lease_id, 1000, None))
        assert world.told[-1].reason == "making-room"
        world.handle(events.Resized(world.now, lease_id, 1000, None))
        assert len(orders(world, ParkMemory)) == 1, "it is told once"
        world.settle()
        world.handle(events.Resized(world.now, lease_id, 1000, None))
        world.settle()
        assert (world.told[-1].reason, world.machine.state.leases[lease_id].shares[0].milli) == ("", 1000)

    def test_waits_for_a_worker_that_is_being_ended(self, world):
        """Its memory goes with it: nobody is told to move it, and nobody is refused for it."""
        first = park(world, "k1", 400)
        lease_id = world.attach("k2", 200, user="bob")
        world.handle(events.SessionClosed(world.now, first, "release"))
        world.handle(events.Resized(world.now, lease_id, 1000, None))
        told = world.told[-1]
        assert (told.reason, orders(world, ParkMemory)) == ("making-room", [])
        assert told.explanation == "freeing 3.1 GiB of 1 session that is being ended to make room on node1/0"
        world.settle()
        world.handle(events.Resized(world.now, lease_id, 1000, None))
        world.settle()
        assert (world.told[-1].reason, world.machine.state.leases[lease_id].shares[0].milli) == ("", 1000)

    def test_is_refused_when_parked_memory_stays(self, world):
        world.nodes["node1"].park_memory_mib = 0
        world.connect()
        park(world, "k1", 400)
        lease_id = world.attach("k2", 200, user="bob")
        world.handle(events.Resized(world.now, lease_id, 1000, None))
        assert (world.told[-1].reason, "keeps 3174 MiB" in world.told[-1].explanation) == ("full", True)


class TestThatItCannotBeMade:
    def test_names_the_session_and_what_keeps_it(self, world):
        first = park(world, "k1", 400)
        world.nodes["node1"].workers[first].park_obstacle = "managed"
        world.live(6)
        world.request("k2", 1000, user="bob")
        said = world.answer("k2")
        assert said.reason == "full"
        assert (
            f"parked session {first} of ann keeps 3174 MiB, which cannot be moved: a module of it has `__managed__` "
            "variables, which the driver's checkpoint does not carry"
        ) in said.explanation

    def test_says_how_much_host_memory_is_left(self, world):
        world.nodes["node1"].park_memory_mib = 1000
        world.connect()
        park(world, "k1", 400)
        world.request("k2", 1000, user="bob")
        assert "host memory of node1 takes 1000 MiB more of parked sessions" in world.answer("k2").explanation

    @pytest.mark.parametrize(
        ("said", "words"),
        [
            ("failed why=out-of-memory", "the driver refused (out-of-memory)"),
            ("busy", "its last work has not ended"),
            ("capture", "a stream is being captured"),
            ("no worker of this session runs here", "no worker of this session runs here"),
            ("", "no reason given"),
        ],
    )
    def test_that_failed_says_why_in_words(self, world, said, words):
        first = park(world, "k1", 400)
        world.request("k2", 1000, user="bob", wait=None)
        (order,) = orders(world, ParkMemory)
        answer = events.MemoryParked(
            world.now, "node1", order.connection, first, order.epoch, False, said, 0, order.request, "host"
        )
        world.handle(answer)
        assert session(world, first).park_failure == words

    def test_names_who_failed_and_is_tried_again_later(self, world):
        first = park(world, "k1", 400)
        world.nodes["node1"].workers[first].stuck = True
        world.request("k2", 1000, user="bob", wait=300.0)
        world.settle()
        assert f"parked session {first} of ann keeps 3174 MiB" in world.answer("k2").explanation
        assert "the last try failed (its last work has not ended)" in world.answer("k2").explanation
        world.nodes["node1"].workers[first].stuck = False
        world.live(35)
        assert isinstance(world.answer("k2"), instructions.TellGranted)

    def test_gives_up_on_a_worker_that_does_not_answer(self, world):
        park(world, "k1", 400)
        world.request("k2", 1000, user="bob", wait=600.0)
        world.nodes["node1"].to_node.clear()
        world.live(world.timers.park + 2)
        assert "no answer within 150 s" in next(
            x.explanation for x in world.journal if x.kind == "park-failed"
        )

    def test_leaves_an_attached_session_alone(self, world):
        lease_id = world.attach("k1", 400)
        world.request("k2", 1000, user="bob")
        assert world.answer("k2").reason == "full"
        assert world.machine.state.leases[lease_id].state == "attached"
        assert not orders(world, ParkMemory)


class TestHostBudget:
    def test_counts_what_lies_there_and_what_is_on_its_way(self, world):
        world.nodes["node1"].park_memory_mib = 4000
        world.connect()
        first = park(world, "k1", 400)
        world.release(world.attach("k2", 1000, user="bob"))  # first left for it: 3174 MiB of 4000
        world.settle()
        assert session(world, first).place == "host"
        world.request("k3", 1000, user="cat")
        assert "host memory of node1 takes 826 MiB more" in world.answer("k3").explanation


class TestHostMemoryThatIsFull:
    @pytest.fixture
    def world(self, world: PoolWorld) -> PoolWorld:
        """One parked session of 3174 MiB in the host, which has 826 MiB more, and one on the device."""
        world.nodes["node1"].park_memory_mib = 4000
        world.nodes["node1"].park_disk_mib = 4000
        world.connect()
        park(world, "k1", 400)
        lease_id = world.attach("k2", 1000, user="bob")
        world.release(lease_id, close=True)
        world.settle()
        park(world, "k3", 300)
        assert [x.place for x in world.machine.state.sessions.values()] == ["host", "device", "device"]
        return world

    def test_sends_on_to_disk_who_has_lain_there_the_longest(self, world):
        world.request("k4", 1000, user="bob")
        assert [(o.session_id, o.place) for o in orders(world, ParkMemory)] == [("s1", "image")]
        assert world.answer("k4").explanation == (
            "moving 3.1 GiB of 1 parked session to the disk of node1, because its host memory has no room for all"
        )
        world.settle()
        assert isinstance(world.answer("k4"), instructions.TellGranted)
        assert [session(world, name).place for name in ("s1", "s3")] == ["image", "host"]

    def test_sends_to_disk_at_once_what_host_memory_could_never_hold(self, world):
        world.handle(events.SessionClosed(world.now, "s1", "exit"))
        world.settle()
        world.nodes["node1"].park_memory_mib = 0
        world.connect()
        world.request("k4", 1000, user="bob")
        assert [(o.session_id, o.place) for o in orders(world, ParkMemory)] == [("s3", "image")]
        world.settle()
        assert isinstance(world.answer("k4"), instructions.TellGranted)

    def test_keeps_who_cannot_be_carried_by_an_image(self, world):
        world.nodes["node1"].workers["s1"].move_obstacle = "arrays"
        world.nodes["node1"].workers["s3"].move_obstacle = "arrays"
        world.live(6)
        world.request("k4", 1000, user="bob")
        assert "host memory of node1 takes 826 MiB more" in world.answer("k4").explanation

    def test_keeps_whom_disk_has_no_room_for(self, world):
        world.nodes["node1"].park_disk_mib = 2000
        world.connect()
        world.request("k4", 1000, user="bob")
        assert "host memory of node1 takes 826 MiB more" in world.answer("k4").explanation


class TestTheVictim:
    def test_that_is_asked_to_go_on_waits_for_the_outcome_and_then_resumes(self, world):
        first = park(world, "k1", 400)
        world.request("k2", 1000, user="bob")
        world.request("k3", 400, session_id=first, wait=None)
        assert "is being moved to host memory; it goes on when that is done" in world.answer("k3").explanation
        world.settle()
        assert session(world, first).place == "host"
        world.release("l2", close=True)
        world.settle()
        assert isinstance(world.answer("k3"), instructions.TellGranted)
        assert (session(world, first).place, session(world, first).state) == ("device", "attached")

    def test_is_never_the_session_that_asks(self, world):
        first = park(world, "k1", 400)
        world.request("k2", 900, session_id=first)
        assert [type(o) for o in world.nodes["node1"].to_node if isinstance(o, ParkMemory | ApplyLease)] == [
            ApplyLease
        ]

    def test_that_is_closed_meanwhile_makes_room_too(self, world):
        first = park(world, "k1", 400)
        world.request("k2", 1000, user="bob", wait=None)
        world.handle(events.SessionClosed(world.now, first, "release"))
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)

    def test_whose_worker_dies_makes_room_too(self, world):
        first = park(world, "k1", 400)
        world.request("k2", 1000, user="bob", wait=None)
        world.nodes["node1"].to_node.clear()
        world.nodes["node1"].crash_worker(first, world.now)
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)


class TestGoingOn:
    def test_where_it_was_when_it_fits_there(self, pair):
        first = park(pair, "k1", 400)
        pair.attach("k2", 1000, session_id=first)
        assert session(pair, first).device_ids == ("node1/0",)

    def test_on_another_device_of_its_node_when_its_memory_lies_in_the_host(self):
        world = PoolWorld(nodes={"node1": 2})
        world.nodes["node1"].fraction = 1.0
        world.connect()
        first = park(world, "k1", 400)
        world.attach("k2", 1000, user="bob")
        world.attach("k3", 1000, user="bob")
        assert session(world, first).place == "host"
        (free,) = {"node1/0", "node1/1"} - set(session(world, first).device_ids)
        lease = next(
            x for x in world.machine.state.leases.values() if x.live and x.shares[0].device_id == free
        )
        world.release(lease.id, close=True)
        world.settle()
        world.request("k4", 500, session_id=first)
        (order,) = orders(world, ApplyLease)
        assert [share.device_id for share in order.shares] == [free]
        world.settle()
        assert (session(world, first).device_ids, session(world, first).place) == ((free,), "device")

    def test_on_another_device_by_way_of_the_host(self):
        """Its own memory leaves for the host when another device has room and its own has not."""
        world = PoolWorld(nodes={"node1": 2})
        world.nodes["node1"].fraction = 1.0
        world.connect()
        first = park(world, "k1", 100)
        assert session(world, first).device_ids == ("node1/0",)
        world.attach("k2", 900, user="bob")  # best fit: beside it
        assert session(world, first).place == "device"
        world.request("k3", 500, session_id=first)
        assert "goes on on node1/1" in world.answer("k3").explanation
        world.settle()
        assert isinstance(world.answer("k3"), instructions.TellGranted)
        now = session(world, first)
        assert (now.device_ids, now.place, now.state) == (("node1/1",), "device", "attached")

    def test_a_worker_that_cannot_resume_leaves_it_parked_and_says_why(self, world):
        first = park(world, "k1", 400)
        world.attach("k2", 1000, user="bob")
        world.release("l2", close=True)
        world.settle()
        assert session(world, first).place == "host"
        world.nodes["node1"].workers[first].stuck = True
        world.request("k3", 400, session_id=first)
        world.settle()
        assert world.answer("k3").reason == "worker-failed"
        assert (session(world, first).state, session(world, first).place) == ("parked", "host")

    def test_elsewhere_is_only_a_device_of_the_same_kind(self):
        view = PoolView(
            (
                DeviceView("n/0", "n", 8192, held=(Held("l1", "bob", 1000, USABLE),), kind="A100"),
                DeviceView("n/1", "n", 8192, kind="H100"),
                DeviceView("m/0", "m", 8192, kind="H100"),
            ),
            host_room={"n": 100_000},
        )
        decision = decide(view, Request("ann", 200, parked=Parked("s1", ("n/0",), (500,), "host")))
        assert (decision.outcome, decision.wants) == (Outcome.QUEUE, ("n/0",))
        alike = replace(view, devices=(*view.devices[:2], replace(view.devices[2], kind="A100")))
        decision = decide(alike, Request("ann", 200, parked=Parked("s1", ("n/0",), (500,), "host")))
        assert [share.device_id for share in decision.shares] == ["m/0"]

    def test_the_fewest_bytes_decide_between_others_leaving_and_going_away(self):
        def ways(others: int, own: int):
            view = PoolView(
                (
                    DeviceView("n/0", "n", 8192, held=(kept("v", others),), kind="A"),
                    DeviceView("m/0", "m", 8192, kind="A"),
                ),
                host_room={"n": 100_000, "m": 100_000},
            )
            return decide(view, Request("ann", 1000, parked=Parked("s1", ("n/0",), (own,))))

        assert ways(others=3000, own=1000).evict == ("v",)
        assert ways(others=5000, own=1000).shares[0].device_id == "m/0"


class TestMovingToAnotherNode:
    def full_node(self, pair: PoolWorld) -> str:
        """A parked session on node1, all of whose compute somebody else holds."""
        first = park(pair, "k1", 100)
        pair.attach("k2", 900, user="bob")
        return first

    def test_the_new_worker_fetches_it_and_the_old_one_is_ended_afterwards(self, pair):
        first = self.full_node(pair)
        secret = session(pair, first).secret
        pair.request("k3", 500, session_id=first)
        (start,) = orders(pair, StartWorker, "node2")
        assert (start.image_source, start.epoch, start.move_key) == ("node1:1", 2, secret)
        assert session(pair, first).node == "node1", "until the new worker runs the session is where it was"
        pair.settle()
        assert isinstance(pair.answer("k3"), instructions.TellGranted)
        now = session(pair, first)
        assert (now.node, now.device_ids, now.address, now.state) == (
            "node2",
            ("node2/0",),
            "node2:1",
            "attached",
        )
        assert now.left is None
        assert first not in pair.nodes["node1"].workers

    def test_what_the_old_worker_keeps_counts_until_it_has_ended(self, pair):
        first = self.full_node(pair)
        pair.request("k3", 500, session_id=first)
        pair.step_to_node("node2")
        pair.step_to_pool("node2")
        assert session(pair, first).node == "node2"
        assert session(pair, first).left is not None
        assert orders(pair, StopWorker, "node1")
        pair.nodes["node1"].to_node.clear()
        (view,) = (
            d for d in pool_view(pair.machine.state, pair.timers, {}, pair.now).devices if d.id == "node1/0"
        )
        assert [(held.session_id, held.mib, held.movable) for held in view.held] == [
            ("", 7142, False),
            (first, 793, False),
        ]
        pair.nodes["node1"].heartbeat(pair.now)  # the pool hears of the worker and tells it again
        pair.settle()
        assert session(pair, first).left is None

    def test_that_fails_leaves_it_parked_where_it_was(self, pair):
        first = self.full_node(pair)
        pair.nodes["node2"].cut_off = True
        pair.request("k3", 500, session_id=first)
        pair.settle()
        refused = pair.answer("k3")
        assert (refused.reason, "could not be fetched" in refused.explanation) == ("worker-failed", True)
        now = session(pair, first)
        assert (now.node, now.state, now.place, now.lease_id) == ("node1", "parked", "device", "")
        assert pair.free("node2/0") == 1000

    def test_whose_new_node_is_lost_leaves_it_parked_where_it_was(self, pair):
        first = self.full_node(pair)
        pair.request("k3", 500, session_id=first)
        pair.disconnect("node2")
        pair.live(pair.timers.reuse + 5)
        assert isinstance(pair.answer("k3"), instructions.TellRefused)
        assert (session(pair, first).node, session(pair, first).state) == ("node1", "parked")
        pair.live(pair.timers.reuse + 5)
        assert session(pair, first).lease_id == ""

    def test_whose_old_worker_ends_in_time_is_as_good(self, pair):
        """The new worker may have fetched everything before: only its own failure would lose the session."""
        first = self.full_node(pair)
        pair.request("k3", 500, session_id=first)
        pair.step_to_node("node2")  # it has fetched, and says so
        pair.nodes["node1"].crash_worker(first, pair.now)
        pair.step_to_pool("node1")
        assert session(pair, first).source_gone
        pair.settle()
        assert isinstance(pair.answer("k3"), instructions.TellGranted)
        assert session(pair, first).node == "node2"

    def test_that_loses_both_workers_says_lost(self, pair):
        first = self.full_node(pair)
        pair.request("k3", 500, session_id=first)
        pair.nodes["node1"].crash_worker(first, pair.now)
        pair.step_to_pool("node1")
        pair.settle()
        assert isinstance(pair.answer("k3"), instructions.TellRefused)
        assert (session(pair, first).state, session(pair, first).reason) == ("closed", "lost")

    def test_is_not_begun_for_a_session_that_cannot_be_carried_and_it_says_why(self, pair):
        first = self.full_node(pair)
        worker = pair.nodes["node1"].workers[first]
        worker.move_obstacle, worker.park_obstacle = "graphs", "managed"
        pair.live(6)
        pair.request("k3", 500, session_id=first)
        said = pair.answer("k3")
        assert said.reason == "full"
        assert "it cannot go on in another node: it holds a graph" in said.explanation

    def test_survives_a_restart_of_the_pool(self, tmp_path: Path):
        world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1, "node2": 1})
        for name in world.nodes:
            world.nodes[name].fraction = 1.0
            world.connect(name)
        first = self.full_node(world)
        world.request("k3", 500, session_id=first)
        world.step_to_node("node2")  # the new worker runs, and nobody has heard of it
        world.crash()
        for name in world.nodes:
            world.connect(name)
        world.request("k3", 500, session_id=first)
        world.settle()
        assert isinstance(world.answer("k3"), instructions.TellGranted)
        assert session(world, first).node == "node2"
        assert first not in world.nodes["node1"].workers

    def test_and_back_again(self, pair):
        first = self.full_node(pair)
        pair.request("k3", 500, session_id=first)
        pair.settle()
        pair.release(session(pair, first).lease_id)
        pair.settle()
        pair.attach("k4", 900, user="dan")  # on node2
        pair.release("l2", close=True)
        pair.settle()
        pair.attach("k5", 500, session_id=first)
        assert session(pair, first).node == "node1"
        assert first not in pair.nodes["node2"].workers


def on_devices(world: PoolWorld) -> dict[str, int]:
    """MiB used of each device, as the lists show it."""
    shown = convert.device_list(world.machine.state, world.timers, world.now, None)
    return {device.id: device.used_bytes >> 20 for device in shown.devices}


class TestWhatADeviceShowsAsUsed:
    def test_is_memory_that_lies_on_it_with_a_lease_or_without(self, world):
        lease_id = world.attach("k1", 400)
        world.live(6)
        assert on_devices(world) == {"node1/0": 3174}
        world.release(lease_id)
        world.settle()
        assert on_devices(world) == {"node1/0": 3174}

    def test_is_nothing_of_what_left_for_the_host(self, world):
        park(world, "k1", 400)
        world.attach("k2", 1000, user="bob")
        world.live(6)
        assert on_devices(world) == {"node1/0": USABLE}

    def test_goes_with_a_session_to_another_node_when_its_old_worker_has_ended(self, pair):
        first = park(pair, "k1", 100)
        pair.attach("k2", 900, user="bob")
        pair.live(6)
        assert on_devices(pair) == {"node1/0": 7142 + 793, "node2/0": 0}
        pair.request("k3", 500, session_id=first)
        pair.step_to_node("node2")
        pair.step_to_pool("node2")
        assert session(pair, first).left is not None
        assert on_devices(pair)["node1/0"] == 7142 + 793
        pair.settle()
        pair.live(6)
        assert on_devices(pair) == {"node1/0": 7142, "node2/0": 793}


class TestOnDisk:
    def on_disk(self, world: PoolWorld) -> str:
        world.nodes["node1"].park_disk_mib = 4000
        world.connect()
        first = park(world, "k1", 400)
        for place in ("host", "image"):
            step = world.step()
            parking_rules.begin(step, first, place, "maintenance")
            world.deliver(step)
            world.settle()
        assert (session(world, first).place, session(world, first).address) == ("image", "")
        assert first not in world.nodes["node1"].workers
        return first

    def test_its_worker_is_known_though_its_lease_was_over_before_that_had_started(self, world):
        """Else the next lease, which that worker serves, would be granted without an address."""
        first = self.on_disk(world)
        world.request("k2", 400, session_id=first)
        world.release(session(world, first).lease_id)
        world.settle()
        assert (session(world, first).state, session(world, first).address) == ("parked", "node1:1")
        world.attach("k3", 400, session_id=first)

    def test_it_takes_no_memory_and_comes_back_by_a_new_worker(self, world):
        first = self.on_disk(world)
        world.attach("k2", 1000, user="bob")
        world.release("l2", close=True)
        world.settle()
        world.request("k3", 400, session_id=first)
        (start,) = orders(world, StartWorker)
        assert (start.from_image, start.image_source, start.epoch) == (True, "", 2)
        world.settle()
        assert (session(world, first).state, session(world, first).place) == ("attached", "device")

    def test_it_survives_restarts_of_agent_and_pool(self, tmp_path: Path):
        world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
        world.nodes["node1"].fraction = 1.0
        world.connect()
        first = self.on_disk(world)
        world.nodes["node1"].forget_workers()
        world.crash()
        world.connect()
        world.attach("k3", 400, session_id=first)
        assert session(world, first).state == "attached"

    def test_a_share_too_small_for_it_is_refused(self, world):
        first = self.on_disk(world)
        world.request("k3", 200, session_id=first)
        assert "the session keeps 3174 MiB" in world.answer("k3").explanation

    def test_an_image_that_is_gone_is_a_lost_session(self, world):
        first = self.on_disk(world)
        world.nodes["node1"].images.clear()
        world.connect()
        assert (session(world, first).state, session(world, first).reason) == ("closed", "lost")

    def test_it_is_dropped_when_nobody_asks_for_it_in_a_week(self, world):
        first = self.on_disk(world)
        world.now += 7 * 86400 - 60
        world.connect()
        world.live(10)
        assert session(world, first).state == "parked"
        world.live(60)
        assert (session(world, first).state, world.nodes["node1"].images) == ("closed", {})

    def test_a_pool_that_is_often_restarted_drops_it_all_the_same(self, tmp_path: Path):
        world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
        world.nodes["node1"].fraction = 1.0
        world.connect()
        first = self.on_disk(world)
        world.nodes["node1"].forget_workers()
        for _ in range(3):
            world.now += 3 * 86400
            world.crash()
            world.connect()
        world.live(10)
        assert (session(world, first).state, world.nodes["node1"].images) == ("closed", {})

    def test_an_image_whose_session_is_long_forgotten_is_removed(self, world):
        first = self.on_disk(world)
        world.disconnect()
        world.handle(events.SessionClosed(world.now, first, "exit"))
        world.live(2 * 3600)
        assert first not in world.machine.state.sessions
        assert first in world.nodes["node1"].images
        world.connect()
        world.settle()
        assert world.nodes["node1"].images == {}

    def test_closing_it_removes_the_image(self, world):
        first = self.on_disk(world)
        world.handle(events.SessionClosed(world.now, first, "exit"))
        world.settle()
        assert not world.nodes["node1"].images
        assert session(world, first).worker_gone


def test_a_real_device_and_a_software_gpu_count_alike():
    world = PoolWorld(nodes={"node1": 1})
    world.nodes["node1"].devices = (offered(0, software=False),)
    world.nodes["node1"].fraction = 1.0
    world.nodes["node1"].park_memory_mib = 0
    world.connect()
    park(world, "k1", 400)
    world.request("k2", 1000, user="bob")
    assert "keeps 3174 MiB" in world.answer("k2").explanation


def test_a_session_whose_worker_was_never_heard_of_keeps_its_whole_share(world: PoolWorld) -> None:
    """It is fenced before anybody has said what it keeps, so nothing is lent over it."""
    lease_id = world.attach("k1", 700)
    share = world.machine.state.leases[lease_id].shares[0]
    world.release(lease_id)
    world.advance(world.timers.reuse + world.timers.holder)
    lease = world.machine.state.leases[lease_id]
    (kept,) = session(world, lease.session_id).usage.memory_used
    assert (lease.state, kept) == ("ended", share.mib << 20)
