"""What becomes of leases and sessions when nodes or the pool itself are away, and when they are forgotten."""

from __future__ import annotations

import pytest
from gpupool.model import events, instructions

from tests.support.pool_world import PoolWorld, lease, offered, session


@pytest.fixture
def world() -> PoolWorld:
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    return world


class TestNodes:
    def test_a_node_that_stays_silent_is_lost_and_its_shares_come_back(self, world):
        lease_id = world.attach("k1", 200)
        world.advance(16)
        world.request("k2", 100, user="bob")
        assert "silent" in world.answer("k2").explanation
        world.handle(events.Renewed(world.now, (lease_id,)))
        world.advance(16)
        assert (lease(world, lease_id).state, lease(world, lease_id).reason) == ("ended", "lost")
        assert session(world, lease_id).state == "lost"

    def test_its_worker_has_stopped_serving_by_then(self, world):
        world.attach("k1", 200)
        world.live(20)
        worker = world.nodes["node1"].workers["s1"]
        world.handle(events.Renewed(world.now, ("l1",)))
        while lease(world, "l1").holds:
            world.advance(0.5)
        assert not worker.serves(world.now)

    def test_a_worker_that_fenced_itself_has_lost_its_lease_though_the_node_is_back_in_time(self, world):
        lease_id = world.attach("k1", 200)
        world.handle(events.Renewed(world.now, (lease_id,)))
        world.advance(27)  # past the fence, before the node counts as lost
        world.handle(events.Renewed(world.now, (lease_id,)))
        world.nodes["node1"].heartbeat(world.now)
        world.settle()
        assert (lease(world, lease_id).state, lease(world, lease_id).reason) == ("ended", "lost")
        assert session(world, lease_id).state == "parked"
        again = world.attach("k2", 200, session_id="s1")
        assert world.nodes["node1"].workers["s1"].serves(world.now)
        assert lease(world, again).epoch == 2

    def test_a_session_comes_back_with_its_node(self, world):
        lease_id = world.attach("k1", 200)
        world.disconnect()
        world.advance(40)
        assert session(world, lease_id).state == "lost"
        world.connect()
        assert session(world, lease_id).state == "parked"
        again = world.attach("k2", 200, session_id="s1")
        assert lease(world, again).epoch == 2

    def test_a_short_break_costs_nothing(self, world):
        lease_id = world.attach("k1", 200)
        world.disconnect()
        world.advance(10)
        world.connect()
        world.live(60)
        assert lease(world, lease_id).state == "attached"

    def test_a_release_that_the_node_missed_is_told_when_it_is_back(self, world):
        lease_id = world.attach("k1", 200)
        world.disconnect()
        world.release(lease_id)
        world.connect()
        assert world.free() == 800, "the worker does not know yet"
        world.settle()
        assert world.free() == 1000
        assert not world.nodes["node1"].workers["s1"].serves(world.now)

    def test_a_start_order_that_was_lost_with_the_stream_is_given_again(self, world):
        world.request("k1", 200)
        world.disconnect()
        world.connect()
        world.settle()
        assert isinstance(world.answer("k1"), instructions.TellGranted)

    def test_a_new_agent_that_knows_nothing_of_a_start_is_not_told_to_start_it_again(self, world):
        world.request("k1", 200)
        world.step_to_node("node1")  # the worker runs; nobody has heard of it
        world.disconnect()
        world.nodes["node1"].forget_workers()
        world.connect()
        assert world.answer("k1").reason == "worker-failed"
        assert world.free() == 800

    def test_a_worker_that_died_unseen_keeps_its_share_until_it_is_fenced_for_sure(self, world):
        lease_id = world.attach("k1", 200)
        del world.nodes["node1"].workers["s1"]
        world.connect()
        assert (lease(world, lease_id).state, session(world, lease_id).state) == ("releasing", "closed")
        assert world.free() == 800
        world.live(31)
        assert world.free() == 1000

    def test_a_worker_that_is_seen_to_die_gives_its_share_back_at_once(self, world):
        lease_id = world.attach("k1", 200)
        world.nodes["node1"].crash_worker("s1", world.now)
        world.settle()
        assert world.free() == 1000
        assert lease(world, lease_id).reason == "lost"
        assert session(world, lease_id).state == "closed"

    def test_a_clean_exit_is_an_exit(self, world):
        lease_id = world.attach("k1", 200)
        world.handle(events.WorkerExited(world.now, "node1", 1, "s1", 0, ""))
        assert lease(world, lease_id).reason == "exit"

    def test_a_worker_that_nobody_knows_is_stopped(self, world):
        hello = events.NodeHello(
            world.now, "node1", 2, "run-2", world.nodes["node1"].devices,
            (events.ReportedWorker("stray", 7, "attached", "127.0.0.1:9"),),
        )  # fmt: skip
        done = world.handle(hello)
        assert [x.session_id for x in done if isinstance(x, instructions.StopWorker)] == ["stray"]

    def test_what_a_superseded_stream_says_is_ignored(self, world):
        world.attach("k1", 200)
        world.connect()
        world.handle(events.WorkerExited(world.now, "node1", 1, "s1", -9, "from the old stream"))
        assert session(world, "l1").state == "attached"

    def test_heartbeats_are_answered_with_the_leases_that_live(self, world):
        world.attach("k1", 200)
        second = world.attach("k2", 300)
        world.release(second)
        done = world.handle(events.NodeHeartbeat(world.now, "node1", 1, 5))
        answer = next(x for x in done if isinstance(x, instructions.AnswerHeartbeat))
        assert answer.number == 5
        assert [(x.session_id, x.epoch) for x in answer.leases] == [("s1", 1)]

    def test_a_device_that_shrank_takes_no_new_shares_while_old_ones_are_held(self, world):
        world.attach("k1", 200)
        world.nodes["node1"].devices = (offered(0, total_mib=2048),)
        world.connect()
        device = world.machine.state.devices["node1/0"]
        assert not device.healthy
        assert "shrank from 8192 to 2048 MiB" in device.health_reason

    def test_a_device_that_shrank_is_measured_anew_when_nothing_of_its_larger_size_is_held(self, world):
        name = world.attach("k1", 200)
        world.nodes["node1"].devices = (offered(0, total_mib=2048),)
        world.connect()
        world.live(10)
        assert not world.machine.state.devices["node1/0"].healthy
        world.release(name, close=True)
        world.settle()
        done = world.handle(events.NodeHeartbeat(world.now, "node1", world.nodes["node1"].connection, 9))
        assert any(isinstance(x, instructions.DropNode) for x in done)
        world.connect()
        device = world.machine.state.devices["node1/0"]
        assert (device.healthy, device.total_mib) == (True, 2048)
        world.attach("k2", 200)


class TestRestart:
    @pytest.fixture
    def world(self, tmp_path) -> PoolWorld:
        world = PoolWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
        world.connect()
        return world

    def test_living_workers_are_adopted(self, world):
        lease_id = world.attach("k1", 200)
        secret = session(world, lease_id).secret
        world.crash()
        world.connect()
        world.live(60)
        assert lease(world, lease_id).state == "attached"
        assert session(world, lease_id).secret == secret

    def test_shares_stay_taken_until_the_fence_time_has_passed(self, world):
        world.attach("k1", 700)
        world.crash()
        del world.nodes["node1"].workers["s1"]
        world.connect()
        world.request("k2", 500, user="bob", wait=None)
        world.live(25)
        assert isinstance(world.answer("k2"), instructions.TellQueued)
        world.live(10)
        assert isinstance(world.answer("k2"), instructions.TellGranted)

    def test_holders_get_their_full_time_to_renew(self, world):
        lease_id = world.attach("k1", 200)
        world.live(20, renew=False)
        world.crash()
        world.connect()
        world.live(20, renew=False)
        assert lease(world, lease_id).state == "attached"

    def test_a_key_still_leads_to_its_lease(self, world):
        lease_id = world.attach("k1", 200)
        world.crash()
        world.connect()
        assert world.attach("k1", 200) == lease_id

    def test_a_deadline_is_kept_across_restarts(self, world):
        lease_id = world.attach("k1", 200, duration=60.0)
        world.live(30)
        world.crash()
        world.connect()
        world.live(35)
        assert lease(world, lease_id).reason == "deadline"

    def test_an_ended_lease_frees_nothing_twice(self, world):
        lease_id = world.attach("k1", 200)
        world.release(lease_id)
        world.crash()
        assert lease(world, lease_id).state == "releasing"
        world.connect()
        world.settle()
        assert lease(world, lease_id).state == "ended"
        assert world.free() == 1000


class TestForgetting:
    def test_ended_leases_and_closed_sessions_are_dropped_after_an_hour(self, world):
        world.release(world.attach("k1", 200), close=True)
        world.settle()
        world.live(3590)
        assert world.machine.state.leases
        world.live(20)
        assert not world.machine.state.leases
        assert not world.machine.state.sessions
        assert not world.machine.state.keys

    def test_a_parked_session_whose_client_is_gone_is_closed(self, world):
        world.release(world.attach("k1", 200))
        world.settle()
        world.nodes["node1"].reports = lambda now: (  # the client has disconnected
            events.ReportedWorker("s1", 1, "parked", "127.0.0.1:1"),
        )
        world.live(3500)
        assert world.machine.state.sessions["s1"].state == "parked"
        world.live(200)
        assert world.machine.state.sessions["s1"].state == "closed"
